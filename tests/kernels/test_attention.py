"""Attention in 16-bit types: what is rounded on the way must not show in the gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from poptorch import testing
from tests.helpers import quiet_options


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
    """Keys that differ by little, and scores of which float32 has no digit behind the point."""
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
