"""Models of the library transformers: of two layers, and with random weights."""

from dataclasses import dataclass, field

import torch
from torch import nn

from tests.networks.zoo.base import Network, integers, normal, sgd

WORDS, PIXELS = 50, 32
_SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
          "intermediate_size": 24, "max_position_embeddings": 32}
_GROUPED = {**_SIZES, "num_key_value_heads": 1}
_GPT = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
_T5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
_BART = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
         "max_position_embeddings": 32}
_IMAGES = {**_SIZES, "image_size": PIXELS, "patch_size": 8}
_WINDOWS = {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4,
            "image_size": PIXELS, "patch_size": 4}

# Settings of configurations, by family, in addition to those of the kind.
ENCODERS = {
    "Albert": {"embedding_size": 16}, "Bert": {}, "BigBird": {"attention_type": "original_full"},
    "Camembert": {"pad_token_id": 1},
    "ConvBert": {"head_ratio": 1, "conv_kernel_size": 3, "num_groups": 1},
    "Deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"],
                  "position_buckets": 8},
    "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
    "Electra": {"embedding_size": 16}, "Ernie": {}, "FNet": {}, "IBert": {},
    "Longformer": {"attention_window": 4}, "MPNet": {}, "MegatronBert": {},
    "ModernBert": {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1,
                   "sep_token_id": 2, "local_attention": 4},
    "RemBert": {"input_embedding_size": 16, "output_embedding_size": 16}, "RoFormer": {},
    "Roberta": {"pad_token_id": 1},
    "SqueezeBert": {"embedding_size": 16, **dict.fromkeys((
        "q_groups", "k_groups", "v_groups", "post_attention_groups", "intermediate_groups",
        "output_groups"), 1)},
    "XLMRobertaXL": {},
}
DECODERS = {
    "BioGpt": _SIZES, "Bloom": {"hidden_size": 16, "n_layer": 2, "n_head": 2},
    "CTRL": {**_GPT, "dff": 24}, "CodeGen": {**_GPT, "n_head": 4, "rotary_dim": 2},
    "Cohere": _GROUPED,
    "DeepseekV3": {**_SIZES, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
                   "topk_group": 1, "moe_intermediate_size": 8, "q_lora_rank": 8,
                   "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
                   "v_head_dim": 8, "first_k_dense_replace": 1, "num_key_value_heads": 2},
    "Falcon": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
    "GPT2": _GPT, "GPTJ": {**_GPT, "rotary_dim": 4},
    "GPTNeo": {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "window_size": 4,
               "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 32},
    "GPTNeoX": _SIZES, "Gemma": {**_GROUPED, "head_dim": 8},
    "Gemma2": {**_GROUPED, "head_dim": 8, "sliding_window": 4}, "Granite": _GROUPED,
    "Llama": _GROUPED, "Mamba": {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},
    "Mistral": {**_GROUPED, "sliding_window": 4}, "Mixtral": {**_GROUPED, "num_local_experts": 2},
    "Mpt": {"d_model": 16, "n_layers": 2, "n_heads": 2, "expansion_ratio": 2, "max_seq_len": 32},
    "OPT": {**_SIZES, "ffn_dim": 24, "word_embed_proj_dim": 16},
    "Olmo": {**_SIZES, "num_key_value_heads": 2}, "Persimmon": _SIZES,
    "Phi": {**_SIZES, "num_key_value_heads": 2}, "Phi3": {**_GROUPED, "pad_token_id": 0},
    "Qwen2": _GROUPED, "Qwen3": {**_GROUPED, "head_dim": 8}, "StableLm": _GROUPED,
    "Starcoder2": _GROUPED,
    "XGLM": {"d_model": 16, "num_layers": 2, "attention_heads": 2, "ffn_dim": 24},
}
TRANSLATORS = {"Bart": _BART, "MBart": _BART, "MT5": _T5, "Pegasus": _BART, "T5": _T5}
CLASSIFIERS = {
    "Beit": {**_IMAGES, "use_relative_position_bias": True},
    "ConvNext": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "image_size": PIXELS},
    "DeiT": _IMAGES, "Dinov2": _IMAGES,
    "MobileViT": {"hidden_sizes": [16] * 3, "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 16],
                  "image_size": PIXELS, "num_attention_heads": 2},
    "PoolFormer": {"hidden_sizes": [8] * 4, "depths": [1] * 4},
    "RegNet": {"embedding_size": 8, "hidden_sizes": [8] * 4, "depths": [1] * 4, "groups_width": 8},
    "ResNet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1],
               "layer_type": "basic"},
    "Segformer": {"hidden_sizes": [8] * 4, "depths": [1] * 4, "num_attention_heads": [1] * 4,
                  "decoder_hidden_size": 8},
    "Swin": _WINDOWS, "Swinv2": _WINDOWS, "ViT": _IMAGES,
}
# What a message says of models that cannot be compiled: values of tensors decide what is
# computed.
REFUSED = {
    "DebertaForSequenceClassification": "depends on the values",
    "DebertaV2ForSequenceClassification": "depends on the values",
    "IBertForMaskedLM": "needs the value", "IBertForSequenceClassification": "needs the value",
    "LongformerForMaskedLM": "needs the value",
    "LongformerForSequenceClassification": "needs the value",
}


@dataclass(frozen=True)
class Model:
    """A class of the library, with what its configuration is to have."""

    name: str
    configuration: str
    inputs: dict  # for each argument of forward what makes it from a generator
    settings: dict = field(default_factory=dict)

    def network(self) -> Network:
        """The model without dropout, for training with a loss of the library's own."""
        import transformers  # not a requirement of the tests: `make libraries` installs it

        settings = {"use_cache": False, **self.settings}
        config = getattr(transformers, self.configuration)(**settings)
        for name in vars(config):
            if any(word in name for word in ("dropout", "drop_prob", "drop_path", "pdrop")):
                setattr(config, name, 0.0)
        module = getattr(transformers, self.name)(config)
        for layer in module.modules():
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0
        makers = self.inputs.values()
        return Network(_WithLabels(module, list(self.inputs)),
                       lambda generator: tuple(make(generator) for make in makers), sgd(0.05))


class _WithLabels(nn.Module):
    """Logits and loss; in inference the logits alone. The labels are the last input."""

    def __init__(self, model: nn.Module, names: list[str]):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        given = dict(zip(self.names, inputs))
        if not self.training:
            del given["labels"]
            return self.model(**given).logits
        found = self.model(**given)
        return found.logits, found.loss


def _words(length: int):
    return lambda generator: 3 + integers(generator, WORDS - 3, 2, length)


def _mask(generator):
    return torch.tensor([[1] * 8, [1] * 5 + [0] * 3])


def _classes(generator):
    return integers(generator, 2, 2)


def _all() -> dict[str, Model]:
    found = []
    text = {"input_ids": _words(8), "attention_mask": _mask}
    for family, settings in ENCODERS.items():
        settings = {**(_SIZES if family != "DistilBert" else {}), **settings}
        for end, labels in (("ForMaskedLM", _words(8)), ("ForSequenceClassification", _classes)):
            found.append(Model(family + end, f"{family}Config", {**text, "labels": labels},
                               {"vocab_size": WORDS, **settings}))
    for family, settings in DECODERS.items():
        end = "LMHeadModel" if family in ("CTRL", "GPT2") else "ForCausalLM"
        found.append(Model(family + end, f"{family}Config",
                           {"input_ids": _words(8), "labels": _words(8)},
                           {"vocab_size": WORDS, **settings}))
    for family, settings in TRANSLATORS.items():
        inputs = {"input_ids": _words(8), "decoder_input_ids": _words(6), "labels": _words(6)}
        found.append(Model(f"{family}ForConditionalGeneration", f"{family}Config", inputs,
                           {"vocab_size": WORDS, **settings}))
    for family, settings in CLASSIFIERS.items():
        pixels = lambda generator: normal(generator, 2, 3, PIXELS, PIXELS)  # noqa: E731
        found.append(Model(f"{family}ForImageClassification", f"{family}Config",
                           {"pixel_values": pixels, "labels": _classes}, settings))
    return {model.name: model for model in found}


MODELS = _all()
