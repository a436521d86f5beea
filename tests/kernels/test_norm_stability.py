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


LAYOUTS = [torch.contiguous_format, torch.channels_last]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_a_large_mean(layout):
    # The gradient of what batch norm takes sums to zero in each channel, so that errors that all
    # entries of a channel have alike are what the gradient of a bias before it consists of.
    x = torch.randn(6, 16, 8, 8).to(memory_format=layout)
    g = torch.randn(6, 16, 8, 8) + 1000
    net = torch.nn.Sequential(torch.nn.Conv2d(16, 16, 1), torch.nn.BatchNorm2d(16))
    # Each layout sums in another order, and eager's error by one of them may be small by chance.
    eager = [gradients(copy.deepcopy(net), x.to(memory_format=order), g) for order in LAYOUTS]
    exact = gradients(copy.deepcopy(net).double(), x.double(), g)
    with poptorch.testing.keep_gradients():
        model = poptorch.trainingModel(Weighted(net), quiet_options())
        model(x, g)
    ours = {name.removeprefix("module."): gradient
            for name, gradient in poptorch.testing.gradients(model).items()}
    check_narrow({name: ours[name] for name in exact}, eager, exact)


def gradients(net, x, g):
    (net(x) * g).sum().backward()
    return {name: p.grad for name, p in net.named_parameters()}


class Weighted(torch.nn.Module):
    """The module with a loss whose gradient by its result is an argument."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x, g):
        return poptorch.identity_loss((self.module(x) * g).sum(), "none")
