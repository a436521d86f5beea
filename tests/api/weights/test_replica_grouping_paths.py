"""Groups of replicas by the path of a parameter, which another may take the place of."""

import copy

import pytest
import torch

import poptorch
from poptorch import CommGroupType, Error
from tests.api.weights.test_replica_grouping import GROUPED, GROUPS, ONE, Net, group, options
from tests.helpers import check_equal_bits


def test_per_replica_params():
    declared, groups = GROUPS["orthogonal"]
    model = poptorch.inferenceModel(Net(2), options())
    for name in GROUPED:
        model.per_replica_params[name] = (*declared, ONE)
    assert dict(model.per_replica_params) == {name: (*declared, ONE) for name in GROUPED}
    same = poptorch.inferenceModel(copy.deepcopy(model.model), options())
    group(same, declared)
    x = torch.randn(8, 3)
    check_equal_bits(model(x), same(x))
    assert len(groups) == len(model.fc.weight)


class Tied(torch.nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False)
        self.a.weight = self.b.weight = torch.nn.Parameter(torch.randn(2, 3, 3))

    def forward(self, x):
        return self.b(self.a(x))


def _replaced(net, how):
    """The module with other parameters at the same places, of the same values."""
    if how == "assign":
        net.load_state_dict({name: value.clone() for name, value in net.state_dict().items()},
                            assign=True)
        return
    for module in net.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, torch.nn.Parameter(parameter.detach().clone()))


@pytest.mark.parametrize("how", ["assign", "set"])
@pytest.mark.parametrize(("net", "names", "names_then"), [
    (Net(2), GROUPED, GROUPED), (Tied(), ["a.weight"], ["a.weight", "b.weight"])],
    ids=["Net", "Tied"])
def test_a_parameter_in_the_place_of_another_keeps_its_groups(net, names, names_then, how):
    net = copy.deepcopy(net)
    model = poptorch.inferenceModel(net, options())
    for name in names:
        model.per_replica_params[name] = (*GROUPS["orthogonal"][0], ONE)
    x = torch.randn(8, 3)
    expected = copy.deepcopy(model)(x)
    _replaced(net, how)
    other = poptorch.inferenceModel(net, options())
    assert sorted(model.per_replica_params) == sorted(names_then)
    assert dict(other.per_replica_params) == dict(model.per_replica_params)
    check_equal_bits(model(x), expected)
    check_equal_bits(other(x), expected)


def test_groups_that_are_taken_back_stay_so():
    net = Net(2)
    model = poptorch.inferenceModel(net, options())
    group(model, GROUPS["orthogonal"][0])
    _replaced(net, "assign")
    for name in GROUPED:
        del model.per_replica_params[name]
    assert dict(model.per_replica_params) == {}
    _replaced(net, "assign")
    assert dict(model.per_replica_params) == {}
    assert dict(poptorch.inferenceModel(net, options()).per_replica_params) == {}


def test_a_path_of_no_parameter():
    model = poptorch.inferenceModel(Net(2), options())
    with pytest.raises(Error, match="no parameter 'fc'. Its parameters are: fc.weight, fc.bias"):
        model.per_replica_params["fc"] = (CommGroupType.Consecutive, 2, ONE)
