"""Models of diffusers: small, with random weights."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from tests.networks.zoo.base import Network, integers, normal, sgd

CHANNELS = {"block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1}


class Denoiser(nn.Module):
    """The prediction of a model, and its squared difference from the last input."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        *given, target = inputs
        found = self.model(**dict(zip(self.names, given)), return_dict=False)[0]
        return (found, (found - target).square().mean()) if self.training else found


@dataclass(frozen=True)
class DiffusionModel:
    """A class of the library with its settings; ``inputs`` makes its arguments by name, the target
    last."""

    name: str
    settings: dict
    inputs: dict[str, Callable]

    def network(self) -> Network:
        """The model, trained by a squared error that is marked as the loss."""
        import diffusers  # not a requirement of the tests: `make libraries` installs it

        model = getattr(diffusers, self.name)(**self.settings)
        makers = self.inputs.values()
        return Network(_Marked(Denoiser(model, tuple(self.inputs)[:-1])),
                       lambda generator: tuple(make(generator) for make in makers), sgd(0.01))


class _Marked(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        import poptorch  # only where the loss is needed

        if not self.training:
            return self.model(*inputs)
        out, loss = self.model(*inputs)
        return out, poptorch.identity_loss(loss, "none")


def _image(channels: int, size: int = 16):
    return lambda generator: normal(generator, 2, channels, size, size)


def _times(generator):
    return integers(generator, 1000, 2)


def _words(generator):
    return normal(generator, 2, 5, 8)


MODELS = {model.name: model for model in (
    DiffusionModel("UNet2DModel", {
        **CHANNELS, "sample_size": 16, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"), "attention_head_dim": 8},
        {"sample": _image(3), "timestep": _times, "target": _image(3)}),
    DiffusionModel("UNet2DConditionModel", {
        **CHANNELS, "sample_size": 16, "in_channels": 4, "out_channels": 4,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"), "cross_attention_dim": 8,
        "attention_head_dim": 2},
        {"sample": _image(4), "timestep": _times, "encoder_hidden_states": _words,
         "target": _image(4)}),
    DiffusionModel("AutoencoderKL", {
        **CHANNELS, "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2, "latent_channels": 4},
        {"sample": _image(3), "target": _image(3)}),
    DiffusionModel("AutoencoderTiny", {
        "encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8),
        "num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)},
        {"sample": _image(3), "target": _image(3)}),
    DiffusionModel("DiTTransformer2DModel", {
        "num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4, "num_layers": 2,
        "sample_size": 8, "patch_size": 2, "norm_num_groups": 1, "dropout": 0.0},
        {"hidden_states": _image(4, 8), "timestep": _times,
         "class_labels": lambda generator: integers(generator, 10, 2),
         "target": _image(4, 8)}),
)}
