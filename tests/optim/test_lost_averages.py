"""Averages that are the newest gradient: nothing of an old one is left, however large."""

import copy

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

OPTIMIZERS = [
    ("Adam", {"betas": (0.0, 0.0)}), ("Adam", {"betas": (0.0, 0.9)}),
    ("Adam", {"betas": (0.4, 0.5), "amsgrad": True}), ("AdamW", {"betas": (0.0, 0.0)}),
    ("Adamax", {"betas": (0.0, 0.0)}), ("NAdam", {"betas": (0.0, 0.0)}),
    ("RAdam", {"betas": (0.0, 0.0)}), ("RMSprop", {"alpha": 0.25, "centered": True})]


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return poptorch.identity_loss((self.weight * x).sum(), "none")


@pytest.mark.parametrize("name, settings", OPTIMIZERS)
def test_optimizers_of_torch(name, settings):
    net, kind = Scale(), getattr(torch.optim, name)
    beside = copy.deepcopy(net)
    ours = kind(net.parameters(), lr=0.125, **settings)
    optimizer = kind(beside.parameters(), lr=0.125, **settings)
    model = poptorch.trainingModel(net, quiet_options(), ours)
    for size in (1e4, 1e-5, 1e-5):
        x = torch.tensor([size, -size, 3.0])
        model(x)
        optimizer.zero_grad()
        beside(x).backward()
        optimizer.step()
    model.copyWeightsToHost()
    torch.testing.assert_close(net.weight, beside.weight)
    for key, value in optimizer.state[beside.weight].items():
        torch.testing.assert_close(ours.state[net.weight][key], value, check_dtype=False)
