"""Weights that are infinite or not a number: as in eager, also where the weight decay is 0."""

import copy

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

OPTIMIZERS = [
    ("Adadelta", {}), ("Adagrad", {}), ("Adam", {}), ("Adam", {"amsgrad": True}), ("AdamW", {}),
    ("Adamax", {}), ("ASGD", {}), ("NAdam", {}), ("NAdam", {"decoupled_weight_decay": True}),
    ("RAdam", {}), ("RMSprop", {}), ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("SGD", {}), ("SGD", {"momentum": 0.5})]


class Net(torch.nn.Module):
    """Has finite gradients, those of infinite weights are 0."""

    def __init__(self):
        super().__init__()
        values = [float("inf"), -float("inf"), float("nan"), 1.0, -2.0, 0.0]
        self.weight = torch.nn.Parameter(torch.tensor(values))

    def forward(self, x):
        return x, poptorch.identity_loss((x * torch.exp(-self.weight.abs())).mean(), "none")


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.25])
@pytest.mark.parametrize("name, settings", OPTIMIZERS)
def test_three_steps(name, settings, decay, maximize):
    net, x = Net(), torch.ones(1)
    eager = copy.deepcopy(net)
    kind = getattr(torch.optim, name)
    settings = {"lr": 0.5, "weight_decay": decay, "maximize": maximize, **settings}
    model = poptorch.trainingModel(net, quiet_options(), kind(net.parameters(), **settings))
    beside = kind(eager.parameters(), **settings)
    for _ in range(3):
        model(x)
        beside.zero_grad()
        eager(x)[1].backward()
        beside.step()
    model.copyWeightsToHost()
    torch.testing.assert_close(net.weight, eager.weight, equal_nan=True)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "LAMB"])
def test_own_optimizers_on_device_and_host(name):
    net, x = Net(), torch.ones(1)
    host = copy.deepcopy(net)
    kind = getattr(poptorch.optim, name)
    settings = {"lr": 0.5, "weight_decay": 0.0}
    if name == "LAMB":
        settings["max_weight_norm"] = 4.0
    model = poptorch.trainingModel(net, quiet_options(), kind(net.parameters(), **settings))
    beside = kind(host.parameters(), **settings)
    for _ in range(3):
        model(x)
        beside.zero_grad()
        host(x)[1].backward()
        beside.step()
    model.copyWeightsToHost()
    torch.testing.assert_close(net.weight, host.weight, equal_nan=True)
    assert name == "LAMB" or net.weight[:2].tolist() == [float("inf"), -float("inf")]
