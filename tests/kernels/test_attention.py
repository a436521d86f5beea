"""Attention in 16-bit types: what is rounded on the way must not show in the gradients."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from poptorch import _C, testing
from tests.helpers import check_equal_bits, quiet_options
from tests.ops.sample import from_host, to_host


class Attention(nn.Module):
    """Values far from zero: the rounding of the result is then larger than the gradients' own."""

    def __init__(self, dtype):
        super().__init__()
        self.q = nn.Parameter(torch.randn(1, 2, 5, 4).to(dtype))
        self.k = nn.Parameter(torch.randn(1, 2, 7, 4).to(dtype))
        self.v = nn.Parameter((torch.randn(1, 2, 7, 4) / 8 + 3).to(dtype))

    def forward(self, weights):
        y = F.scaled_dot_product_attention(self.q, self.k, self.v)
        return poptorch.identity_loss((y.to(weights.dtype) * weights).sum(), "none")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradients_in_halves_are_as_exact_as_their_type(seed, dtype):
    module, weights = Attention(dtype), torch.randn(1, 2, 5, 4)
    reference = Attention(torch.float64)
    reference.load_state_dict({name: value.double() for name, value in
                               module.state_dict().items()})
    reference(weights.double()).backward()
    with testing.keep_gradients():
        model = poptorch.trainingModel(module, quiet_options(),
                                       torch.optim.SGD(module.parameters(), lr=0.0))
        model(weights)
    for name, gradient in testing.gradients(model).items():
        expected = getattr(reference, name).grad
        error = (gradient.double() - expected).abs().max() / expected.abs().max()
        assert error <= 2 * torch.finfo(dtype).eps, f"{name}: {error:.1e}"


def test_what_gradients_of_large_scores_have_in_common_cancels(seed):
    """Similar keys, and scores for which float32 has no digit after the point."""
    module, weights = Attention(torch.float32), torch.rand(1, 2, 5, 4) + 1000
    with torch.no_grad():
        module.q.mul_(300).add_(500)
        module.k.copy_(module.k[:, :, :1] * 20 + 300 + module.k / 4096)
    reference, eager = Attention(torch.float64), Attention(torch.float32)
    for other in (reference, eager):
        other.load_state_dict(module.state_dict())
        other(weights.to(other.q.dtype)).backward()
    with testing.keep_gradients():
        model = poptorch.trainingModel(module, quiet_options(),
                                       torch.optim.SGD(module.parameters(), lr=0.0))
        model(weights)
    for name, gradient in testing.gradients(model).items():
        expected = getattr(reference, name).grad
        own = (getattr(eager, name).grad.double() - expected).abs().max()
        error = (gradient.double() - expected).abs().max()
        assert error <= 4 * own + 1e-6 * expected.abs().max(), f"{name}: {error:.1e}, {own:.1e}"


def attention(operands, gradient, mask=None, causal=False, threads=1):
    """The result and the gradients of q, k and v, all bfloat16."""
    attrs = {"scale": 1 / math.sqrt(max(operands[0].shape[-1], 1)), "is_causal": causal,
             "dropout_p": 0.0, "salt": 0}
    given = [*map(to_host, operands), to_host(mask)]
    out, logsumexp = _C.evaluate("attention", [*given, None], attrs, threads=threads)
    gradients = _C.evaluate("attention_backward", [to_host(gradient), *given, logsumexp, None],
                            attrs, threads=threads)
    return [from_host(x, "bf16") for x in (out, *gradients)]


def eager(operands, gradient, mask, causal, dtype):
    """The same by PyTorch, in ``dtype``."""
    leaves = [x.to(dtype).requires_grad_() for x in operands]
    added = mask.to(dtype) if mask is not None and mask.is_floating_point() else mask
    result = F.scaled_dot_product_attention(*leaves, added, is_causal=causal)
    return [result.detach(), *torch.autograd.grad(result, leaves, gradient.to(dtype))]


def bfloat16(*sizes):
    """Normal variates; heads and positions swapped in memory, as a module's are."""
    return torch.randn(*sizes).bfloat16().transpose(1, 2).contiguous().transpose(1, 2)


def operands_of(queries, keys, features):
    return [bfloat16(2, 3, n, features) for n in (queries, keys, keys)], bfloat16(2, 3, queries,
                                                                              features)


def some_rows(queries):
    return torch.rand(queries, 1) < 0.8


SIZES = [(1, 1, 1), (33, 17, 5), (70, 197, 63), (197, 197, 64), (300, 130, 32)]
MASKS = {
    "none": lambda queries, keys: None,
    "bool": lambda queries, keys: (torch.rand(queries, keys) < 0.7) & some_rows(queries),
    "added": lambda queries, keys: torch.randn(2, 1, queries, keys).bfloat16(),
    "keys": lambda queries, keys: torch.randn(1, keys).bfloat16(),
}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("mask", [*MASKS, "causal"])
def test_bfloat16_is_as_exact_as_in_eager(sizes, mask, seed):
    """Which multiplies rounded weights and gradients of scores, too."""
    operands, gradient = operands_of(*sizes)
    given = None if mask == "causal" else MASKS[mask](*sizes[:2])
    how = given, mask == "causal"
    results = attention(operands, gradient, *how)
    check_equal_bits(attention(operands, gradient, *how, threads=2), results)
    exact = eager(operands, gradient, *how, torch.float64)
    own = eager(operands, gradient, *how, torch.bfloat16)
    for ours, theirs, right in zip(results, own, exact, strict=True):
        error, other = ((x.double() - right).abs().max() for x in (ours, theirs))
        assert error <= 2 * other + 2**-8 * right.abs().max(), f"{error:.1e}, eager {other:.1e}"


@pytest.mark.parametrize("where", ["q", "k", "v", "gradient", "mask"])
@pytest.mark.parametrize("causal", [False, True])
def test_no_number_goes_where_it_goes_in_float32(where, causal, seed, monkeypatch):
    """Hidden rows, and NaN and infinity, with the unit for bfloat16 and without."""
    (q, k, v), gradient = operands_of(20, 21, 7)
    mask = torch.randn(20, 21).bfloat16()
    mask[:, ::3] = mask[4] = -math.inf
    broken = {"q": q, "k": k, "v": v, "gradient": gradient, "mask": mask}[where]
    broken[..., 5, 3] = math.nan
    broken[..., 9, 2] = math.inf
    results = attention([q, k, v], gradient, mask, causal)
    monkeypatch.setenv("POPTORCH_OFF", "bf16_unit")
    for ours, other in zip(results, attention([q, k, v], gradient, mask, causal), strict=True):
        assert torch.equal(ours.isnan(), other.isnan())
        assert torch.equal(ours.isinf(), other.isinf())


@pytest.mark.parametrize("queries, keys, features, value_features",
                         [(0, 3, 4, 5), (3, 0, 4, 5), (3, 4, 0, 5), (3, 4, 5, 0), (0, 0, 0, 0)])
def test_without_elements(queries, keys, features, value_features):
    q, k, v = (bfloat16(2, 3, *sizes) for sizes in
               [(queries, features), (keys, features), (keys, value_features)])
    out, dq, dk, dv = attention([q, k, v], bfloat16(2, 3, queries, value_features))
    if features == 0 and queries > 0:  # all keys weigh the same
        torch.testing.assert_close(out.float(), v.float().mean(2, True).expand_as(out), rtol=0.01,
                                   atol=0.01)
    else:
        assert not out.any() and not dv.any()
    assert not dq.any() and not dk.any()
