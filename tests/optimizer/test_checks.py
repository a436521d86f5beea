"""Parameters that stand in an optimizer twice."""

import warnings

import pytest
import torch

import poptorch
from tests.helpers import quiet_options
from tests.optimizer.test_link import Net

X = torch.ones(2, 4)


def doubled(net, **settings):
    with warnings.catch_warnings():  # torch only warns
        warnings.simplefilter("ignore", UserWarning)
        return torch.optim.SGD([*net.parameters(), net.second.weight], lr=0.1, **settings)


def two_groups(net):
    return torch.optim.SGD([{"params": net.first.parameters()},
                            {"params": net.second.parameters()}], lr=0.1)


def words(where, places):
    return (rf"\[{where}\] second.weight stands in parameter {places}: step\(\) of the optimizer "
            rf"would update it twice, the device updates it once. Leave it out of one place.")


def test_twice_in_a_group_is_refused():
    net = Net()
    with pytest.raises(poptorch.Error, match=words("trainingModel", "group 0 twice")):
        poptorch.trainingModel(net, quiet_options(), doubled(net))
    model = poptorch.trainingModel(net, quiet_options(),
                                   torch.optim.SGD(net.parameters(), lr=0.1))
    for _ in range(2):  # before the model is compiled, and after
        with pytest.raises(poptorch.Error, match=words("setOptimizer", "group 0 twice")):
            model.setOptimizer(doubled(net))
        model(X)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_in_two_groups_is_refused(is_compiled):
    net = Net()
    optimizer = two_groups(net)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    if is_compiled:
        model(X)
    optimizer.param_groups[0]["params"].append(net.second.weight)
    with pytest.raises(poptorch.Error, match=words("trainingModel", "the groups 0 and 1")):
        model(X)
    with pytest.raises(poptorch.Error, match=words("setOptimizer", "the groups 0 and 1")):
        model.setOptimizer(optimizer)
    optimizer.param_groups[0]["params"].pop()
    before = net.second.weight.detach().clone()
    model(X)
    assert not torch.equal(net.second.weight, before)


def test_twice_and_not_trained():
    """Of another module, or frozen: nothing updates it."""
    net, other = Net(), Net()
    net.second.weight.requires_grad_(False)
    optimizer = doubled(net)
    optimizer.param_groups[0]["params"] += [other.first.weight] * 2
    before = net.first.bias.detach().clone()
    poptorch.trainingModel(net, quiet_options(), optimizer)(X)
    assert not torch.equal(net.first.bias, before)


def test_one_tensor_under_two_names():
    net = Net()
    net.third = net.second
    poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.1))(X)
