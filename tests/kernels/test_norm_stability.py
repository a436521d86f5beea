"""Norms take the mean away before they square: a large one costs no accuracy, in any setting."""

import copy

import pytest
import torch

import poptorch
from tests.helpers import check_narrow, quiet_options

NORMS = {
    "layer": lambda: torch.nn.LayerNorm(32),
    "group": lambda: torch.nn.GroupNorm(4, 8),
    "instance": lambda: torch.nn.InstanceNorm1d(8, affine=True),
    "batch": lambda: torch.nn.BatchNorm1d(8),
}


@pytest.mark.parametrize("name", NORMS)
def test_large_mean(name):
    x = torch.randn(4, 8, 32) + 1000
    net = NORMS[name]()
    eager, wide = copy.deepcopy(net), copy.deepcopy(net).double()
    results = []
    for is_stable in (False, True):
        options = quiet_options()
        options.enableStableNorm(is_stable)
        model = poptorch.trainingModel(WithLoss(copy.deepcopy(net)), options)
        results.append(model(x)[0])
    assert torch.equal(*results)
    # The mean in float32 is off by a part of 2^-24 of 1000; squares would be by 2^-24 of 10^6.
    check_narrow(results[0], [eager(x)], wide(x.double()))


class WithLoss(torch.nn.Module):
    """The module with a loss that trains it."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        y = self.module(x)
        return y, poptorch.identity_loss(y.square().mean(), "none")
