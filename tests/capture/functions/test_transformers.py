"""Transformers in inference, where eager takes nested tensors and fused operations."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import poptorch
from poptorch._capture.functions.fused_layers import fused_results_in_rows
from tests.helpers import quiet_options

# Eager warns that nested tensors are a prototype.
pytestmark = pytest.mark.filterwarnings("ignore:.*nested tensors")

AT_THE_ENDS = torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1]]).bool()
ELSEWHERE = torch.tensor([[0, 1, 0, 0], [0, 0, 1, 1]]).bool()
MASKS = {
    "at the ends": AT_THE_ENDS,
    "elsewhere": ELSEWHERE,
    "none": torch.zeros(2, 4, dtype=torch.bool),
    "numbers": torch.zeros(2, 4).masked_fill(AT_THE_ENDS, -torch.inf),
}


def encoder(batch_first=True, has_norm=False, **settings):
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=batch_first, **settings)
    norm = nn.LayerNorm(8) if has_norm else None
    if has_norm:
        nn.init.normal_(norm.bias)
    return nn.TransformerEncoder(layer, 2, norm).eval()


def check(net, masks, x, **more):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, mask):
            return self.net(x, src_key_padding_mask=mask, **more)

    model = poptorch.inferenceModel(Net().eval(), quiet_options())
    for mask in masks:
        with torch.no_grad():
            expected = net(x, src_key_padding_mask=mask, **more)
        torch.testing.assert_close(model(x, mask), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize(("batch_first", "has_norm"),
                         [*itertools.product([True, False], [True, False])])
def test_rows_of_padding(batch_first, has_norm):
    """Whether padding is at all ends is known from the values of each call."""
    torch.manual_seed(0)
    x = torch.randn(2, 4, 8) if batch_first else torch.randn(4, 2, 8)
    net = encoder(batch_first, has_norm)
    check(net, [MASKS["at the ends"], MASKS["elsewhere"], MASKS["none"]], x)
    check(net, [MASKS["numbers"]], x)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("settings", [
    {"norm_first": True}, {"activation": "gelu"}, {"activation": torch.tanh}, {"bias": False}])
def test_layers_of_other_kinds(settings):
    torch.manual_seed(1)
    check(encoder(**settings), [AT_THE_ENDS, ELSEWHERE], torch.randn(2, 4, 8))


def test_beside_another_mask_padding_is_computed():
    torch.manual_seed(2)
    causal = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)
    check(encoder(), [AT_THE_ENDS], torch.randn(2, 4, 8), mask=causal)


def test_training_computes_padding():
    torch.manual_seed(3)
    net = encoder().train()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, mask):
            out = self.net(x, src_key_padding_mask=mask)
            return out, poptorch.identity_loss(out.sum(), "none")

    x = torch.randn(2, 4, 8)
    expected = net(x, src_key_padding_mask=AT_THE_ENDS)
    found, _ = poptorch.trainingModel(Net(), quiet_options())(x, AT_THE_ENDS)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.sampled
@pytest.mark.parametrize(("norm_first", "heads", "is_training"), [
    *itertools.product([True, False], [1, 2], [True, False])])
@pytest.mark.parametrize("mask", [None, "attn_mask", "key_padding_mask"])
def test_results_lie_as_those_of_fused_operations(norm_first, heads, is_training, mask):
    settings = {"dropout": 0.0, "batch_first": True}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(4, heads, 8, norm_first=norm_first, **settings)
            self.attention = nn.MultiheadAttention(4, heads, **settings)

        def forward(self, x, *masks):
            x = x.expand(2, 3, 4)
            of_layer = {"src_mask" if mask == "attn_mask" else f"src_{mask}": m for m in masks}
            found = (self.layer(x, **of_layer), *self.attention(x, x, x, **{mask: masks[0]})) \
                if masks else (self.layer(x), *self.attention(x, x, x))
            return [one.as_strided((one.numel(),), (1,), 0) for one in found]

    torch.manual_seed(0)
    net, x = Net().train(is_training), torch.randn(3, 2, 1).transpose(0, 1)
    masks = {None: [], "attn_mask": [~torch.eye(3, dtype=torch.bool)],
             "key_padding_mask": [torch.tensor([[False, False, True]]).expand(2, 3)]}[mask]
    with torch.no_grad():
        expected = net(x, *masks)
    for one, wanted in zip(poptorch.inferenceModel(net, quiet_options())(x, *masks), expected):
        torch.testing.assert_close(one, wanted, rtol=1e-4, atol=1e-4)
    assert torch.backends.mha.get_fastpath_enabled()


def test_other_threads_run_fused_operations_while_one_captures():
    layer = nn.MultiheadAttention(4, 2, batch_first=True).eval().requires_grad_(False)
    x, found = torch.randn(2, 3, 4), []

    def run():
        for name in ("_native_multi_head_attention", "_transformer_encoder_layer_fwd"):
            with pytest.raises(TypeError):  # of the operation itself, which got no arguments
                getattr(torch, name)()
        found.append(layer(x, x, x, need_weights=False)[0])

    with fused_results_in_rows(), ThreadPoolExecutor(1) as threads:
        threads.submit(run).result()
    assert torch.equal(found[0], layer(x, x, x, need_weights=False)[0])
