"""Kernels that read 16-bit floats where they lie keep no float32 copies of them in scratch."""

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

SIXTEEN_BIT = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


class Normalized(torch.nn.Module):
    """Batch norm with a loss."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(8)

    def forward(self, x):
        return poptorch.identity_loss(self.norm(x).relu().square().mean(), "none")


class Totals(torch.nn.Module):
    """Sums along each of two dimensions, and a mean."""

    def forward(self, x):
        return x.sum(0), x.sum(1), x.mean(0)


@SIXTEEN_BIT
@pytest.mark.parametrize("is_trained", [True, False], ids=["training", "inference"])
def test_batch_norm(dtype, is_trained):
    # Statistics are float32, images have 16 bits.
    module, x = Normalized().to(dtype), torch.randn(4, 8, 64, 64, dtype=dtype)
    if is_trained:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        model = poptorch.trainingModel(module, quiet_options(), optimizer)
    else:
        model = poptorch.inferenceModel(module.norm, quiet_options())
    model.compile(x)
    assert model.memory_report()["scratch"] < 4 * x.numel() / 4


@SIXTEEN_BIT
def test_sums(dtype):
    model, x = poptorch.inferenceModel(Totals(), quiet_options()), torch.randn(900, 800).to(dtype)
    results = model(x)
    assert model.memory_report()["scratch"] < 4 * x.numel() / 4
    for got, exact in zip(results, Totals()(x.double()), strict=True):
        assert torch.equal(got, exact.to(dtype))
