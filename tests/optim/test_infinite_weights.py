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


def check_three_steps(kind, settings):
    """The weights after three steps on the device are those after three steps on the CPU, and so
    are the optimizer's states."""
    net, x = Net(), torch.ones(1)
    beside = copy.deepcopy(net)
    ours, optimizer = (kind(m.parameters(), **settings) for m in (net, beside))
    model = poptorch.trainingModel(net, quiet_options(), ours)
    for _ in range(3):
        model(x)
        optimizer.zero_grad()
        beside(x)[1].backward()
        optimizer.step()
    model.copyWeightsToHost()
    torch.testing.assert_close(net.weight, beside.weight, equal_nan=True)
    torch.testing.assert_close(dict(ours.state[net.weight]), dict(optimizer.state[beside.weight]),
                               equal_nan=True)
    return net.weight


@pytest.mark.sampled
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.25])
@pytest.mark.parametrize("name, settings", OPTIMIZERS)
def test_optimizers_of_torch(name, settings, decay, maximize):
    settings = {"lr": 0.5, "weight_decay": decay, "maximize": maximize, **settings}
    check_three_steps(getattr(torch.optim, name), settings)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "LAMB"])
def test_own_optimizers(name):
    settings = {"lr": 0.5, "weight_decay": 0.0}
    if name == "LAMB":
        settings["max_weight_norm"] = 4.0
    weight = check_three_steps(getattr(poptorch.optim, name), settings)
    assert name == "LAMB" or weight[:2].tolist() == [float("inf"), -float("inf")]
