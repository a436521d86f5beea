"""Models of torchvision and timm: small, with random weights, for images of 32 x 32."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from tests.networks.zoo.base import Network, WithLoss, integers, normal, sgd

CLASSES, PIXELS, BATCH = 10, 32, 4


@dataclass(frozen=True)
class ImageModel:
    """A classifier; ``make`` builds it, with what a library exports."""

    name: str
    make: Callable[[], nn.Module]
    pixels: int = PIXELS

    def network(self) -> Network:
        """The model without dropout, with a cross-entropy loss."""
        module = self.make()
        for layer in module.modules():
            for name in ("p", "drop_prob", "dropout", "drop_rate"):
                if isinstance(getattr(layer, name, None), float):
                    setattr(layer, name, 0.0)
        return Network(
            WithLoss(module, nn.CrossEntropyLoss()),
            lambda generator: (normal(generator, BATCH, 3, self.pixels, self.pixels),
                               integers(generator, CLASSES, BATCH)), sgd(0.01))


@functools.cache
def torchvision():
    """The library. PyPI's build of it is for CUDA builds of torch. With others its C++ part is not
    loaded, and importing it needs the names of these two operators."""
    try:
        import torchvision  # not a requirement of the tests: `make libraries` installs it
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")
        import torchvision  # again, now that the names exist
    return torchvision


def _resnet(block, **settings):
    models = torchvision().models.resnet
    return models.ResNet(getattr(models, block), [1, 1, 1, 1], num_classes=CLASSES, **settings)


def _swin(block, patches):
    models = torchvision().models.swin_transformer
    return models.SwinTransformer(
        patch_size=[4, 4], embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4],
        stochastic_depth_prob=0.0, num_classes=CLASSES, block=getattr(models, block),
        downsample_layer=getattr(models, patches))


def _vit():
    return torchvision().models.VisionTransformer(
        image_size=PIXELS, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32,
        num_classes=CLASSES)


def _convnext():
    models = torchvision().models.convnext
    settings = [models.CNBlockConfig(8, 16, 1), models.CNBlockConfig(16, None, 1)]
    return models.ConvNeXt(settings, num_classes=CLASSES)


def _regnet():
    models = torchvision().models.regnet
    settings = models.BlockParams.from_init_params(
        depth=4, w_0=8, w_a=8.0, w_m=2.0, group_width=8, se_ratio=0.25)
    return models.RegNet(settings, num_classes=CLASSES, stem_width=8)


def _efficientnet():
    models = torchvision().models.efficientnet
    settings = [models.MBConvConfig(1, 3, 1, 8, 8, 1), models.MBConvConfig(4, 3, 2, 8, 16, 1),
                models.FusedMBConvConfig(4, 3, 2, 16, 16, 1)]
    return models.EfficientNet(settings, dropout=0.0, num_classes=CLASSES)


def _of(name: str, **settings):
    return getattr(torchvision().models, name)(num_classes=CLASSES, **settings)


def _vgg():
    models = torchvision().models.vgg
    layers = models.make_layers([8, "M", 16, "M"], batch_norm=True)
    return nn.Sequential(layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, CLASSES))


def _mobilenet_v3():
    models = torchvision().models.mobilenetv3
    row = partial(models.InvertedResidualConfig, dilation=1, width_mult=0.5)
    rows = [row(16, 3, 16, 16, True, "RE", 2), row(16, 3, 32, 24, False, "RE", 2),
            row(24, 5, 48, 24, True, "HS", 1)]
    return models.MobileNetV3(rows, 32, num_classes=CLASSES, dropout=0.0)


def _timm(name: str):
    torchvision()
    import timm  # not a requirement of the tests: `make libraries` installs it

    return timm.create_model(name, pretrained=False, num_classes=CLASSES)


TORCHVISION = {
    "ConvNeXt": _convnext,
    "DenseNet": partial(_of, "DenseNet", growth_rate=4, block_config=(2, 2, 2),
                        num_init_features=8),
    "EfficientNet": _efficientnet,
    "GoogLeNet": (partial(_of, "GoogLeNet", aux_logits=False, init_weights=False, dropout=0.0), 64),
    "MNASNet": partial(_of, "MNASNet", alpha=0.2, dropout=0.0),
    "MobileNetV2": partial(_of, "MobileNetV2", width_mult=0.25, dropout=0.0),
    "MobileNetV3": _mobilenet_v3,
    "RegNet": _regnet,
    "ResNet of basic blocks": partial(_resnet, "BasicBlock"),
    "ResNet of bottlenecks": partial(_resnet, "Bottleneck"),
    "ResNeXt": partial(_resnet, "Bottleneck", groups=8, width_per_group=4),
    "ShuffleNetV2": partial(_of, "ShuffleNetV2", stages_repeats=[1, 1, 1],
                            stages_out_channels=[8, 16, 24, 32, 32]),
    "SqueezeNet": (partial(_of, "SqueezeNet", version="1_1", dropout=0.0), 64),
    "Swin": partial(_swin, "SwinTransformerBlock", "PatchMerging"),
    "Swin V2": partial(_swin, "SwinTransformerBlockV2", "PatchMergingV2"),
    "VGG": _vgg,
    "VisionTransformer": _vit,
}
# Small models that the library has for its own tests, and small ones of other families.
TIMM = {name: 96 if name == "test_nfnet" else 160 if name.startswith("test_vit") else PIXELS
        for name in (
            "test_byobnet", "test_convnext", "test_convnext2", "test_convnext3",
            "test_efficientnet", "test_efficientnet_gn", "test_efficientnet_ln",
            "test_efficientnet_evos", "test_mambaout", "test_nfnet", "test_resnet", "test_vit",
            "test_vit2", "test_vit3", "test_vit4")}


def _all() -> dict[str, dict[str, ImageModel]]:
    found = [ImageModel(name, *(made if isinstance(made, tuple) else (made,)))
             for name, made in TORCHVISION.items()]
    small = [ImageModel(name, partial(_timm, name), pixels) for name, pixels in TIMM.items()]
    return {"torchvision": {model.name: model for model in found},
            "timm": {model.name: model for model in small}}


MODELS = _all()
