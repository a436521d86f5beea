"""Each call sends the numbers of the groups that the optimizer has then, however they changed."""

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options


class Scale(nn.Module):
    """Its gradient is what it is called with."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return poptorch.identity_loss(self.weight * x, "sum")


def step(net, model, x=1.0):
    before = net.weight.item()
    model(torch.full((1,), x))
    return before - net.weight.item()


def same_dict(optimizer):
    optimizer.param_groups[0]["lr"] = 0.25


def in_place(optimizer):
    optimizer.param_groups[0]["lr"].fill_(0.25)


def new_dict(optimizer):
    optimizer.param_groups[0] = {**optimizer.param_groups[0], "lr": 0.25}


def new_list(optimizer):
    optimizer.param_groups = [{**optimizer.param_groups[0], "lr": 0.25}]


def new_parameters(optimizer):
    group = optimizer.param_groups[0]
    group["params"] = list(group["params"])
    group["lr"] = 0.25


def loaded(optimizer):
    state = optimizer.state_dict()
    state["param_groups"][0]["lr"] = 0.25
    optimizer.load_state_dict(state)


@pytest.mark.parametrize("change", [same_dict, new_dict, new_list, new_parameters, loaded,
                                    in_place])
def test_a_new_learning_rate_is_used(change):
    net = Scale()
    rate = torch.tensor(0.5) if change is in_place else 0.5
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    assert [step(net, model) for _ in range(3)] == [0.5] * 3
    change(optimizer)
    assert [step(net, model) for _ in range(3)] == [0.25] * 3
    optimizer.param_groups[0]["lr"] = 0.125
    assert [step(net, model) for _ in range(3)] == [0.125] * 3


def change_item(optimizer):
    optimizer.param_groups[0]["betas"][0] = 0.0


def change_tuple(optimizer):
    optimizer.param_groups[0]["betas"] = (0.0, 0.5)


def test_an_item_of_a_list_of_numbers():
    steps = []
    for betas, change in (([0.5, 0.5], change_item), ((0.5, 0.5), change_tuple),
                          ((0.5, 0.5), lambda optimizer: None)):
        net = Scale()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.5)
        optimizer.param_groups[0]["betas"] = betas
        model = poptorch.trainingModel(net, quiet_options(), optimizer)
        for _ in range(2):
            step(net, model)
        change(optimizer)
        steps.append([step(net, model, x) for x in (-3.0, 2.0)])
    assert steps[0] == steps[1] != steps[2]
