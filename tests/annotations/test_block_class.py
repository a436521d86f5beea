"""The class of annotated modules: copies and files of them, other changes of their class."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import poptorch
from tests.helpers import quiet_options

COPIES = [copy.copy, copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 2)

    def forward(self, x):
        return poptorch.identity_loss(self.second(self.first(x)), "mean")


def blocks_of(module):
    return [getattr(part, "_user_id", None) for part in module.modules()]


def trained(net):
    model = poptorch.trainingModel(net, quiet_options())
    model(torch.ones(2, 2))
    return model


@pytest.mark.parametrize("copied", COPIES)
def test_copies_of_a_wrapped_module_that_begins_a_block_itself(copied):
    net = poptorch.BeginBlock(Net(), "all", ipu_id=0)
    model = trained(net)
    again = copied(net)
    assert blocks_of(again) == ["all", None, None] and torch.equal(
        again.second.weight, model.state_dict()["second.weight"])
    poptorch.removeBlocks(again)
    assert type(again) is Net


def test_a_saved_executor_of_a_module_that_begins_a_block_itself(tmp_path):
    model = trained(poptorch.BeginBlock(Net(), "all", ipu_id=0))
    torch.save(model, tmp_path / "model.pt")
    again = torch.load(tmp_path / "model.pt", weights_only=False)
    assert blocks_of(again.model) == ["all", None, None]
    assert torch.equal(model(torch.ones(2, 2)), again(torch.ones(2, 2)))


@pytest.mark.parametrize("copied", COPIES[1:])
def test_copies_of_a_module_that_leads_to_itself(copied):
    net = Net()
    net.first.__dict__["parent"], net.called = net, net.forward
    poptorch.BeginBlock(net, "all", ipu_id=0)
    again = copied(net)
    assert again.first.parent is again and again.called.__self__ is again
    assert blocks_of(again)[0] == "all"


def test_a_pickle_of_a_part_that_an_annotated_module_made():
    whole = poptorch.BeginBlock(nn.Sequential(nn.ReLU(), nn.Tanh()), "all")
    for copied in COPIES:
        assert type(copied(whole[:1])) is nn.Sequential


def test_a_lazy_layer_still_begins_its_block_when_it_has_its_sizes():
    net = nn.Sequential(poptorch.BeginBlock(nn.LazyLinear(3), "a", ipu_id=0),
                        poptorch.BeginBlock(nn.LazyLinear(2), "b", ipu_id=1))
    net(torch.ones(1, 2))
    assert poptorch.module_repr(net).count("BeginBlock") == 2
    with pytest.raises(poptorch.Error, match=r"pipeline stages \(2\)"):
        poptorch.inferenceModel(net, quiet_options())(torch.ones(1, 2))


def test_an_attribute_that_every_name_leads_to_is_none_of_the_modules_own():
    class Any(nn.Module):
        def __getattr__(self, name):
            return super().__getattr__(name) if name[0] == "_" and name[:2] != "_u" else None

    assert poptorch.BeginBlock(Any(), "a")._user_id == "a"


@pytest.mark.filterwarnings("ignore:`torch.jit.trace")
def test_a_traced_module_begins_a_block():
    layer = nn.Linear(2, 2)
    traced = poptorch.BeginBlock(torch.jit.trace(layer, torch.ones(1, 2)), "a", ipu_id=0)
    assert torch.equal(traced(torch.ones(3, 2)), layer(torch.ones(3, 2)))
    net = nn.Sequential(traced, poptorch.BeginBlock(nn.Linear(2, 2), "b", ipu_id=1))
    with pytest.raises(poptorch.Error, match=r"pipeline stages \(2\)"):
        poptorch.inferenceModel(net, quiet_options())(torch.ones(1, 2))


class Told(nn.Linear):
    """Enters each subclass under a name that it must give."""

    names: list = []

    def __init_subclass__(cls, *, tag):
        Told.names.append(tag)


class Loss(Told, tag="loss"):
    def forward(self, x):
        return poptorch.identity_loss(super().forward(x), "mean")


def test_a_class_is_not_told_of_classes_for_one_module():
    layer = poptorch.BeginBlock(Loss(2, 2), "a", ipu_id=0)
    trained(layer).destroy()
    trained(Loss(2, 2))
    assert Told.names == ["loss"]
    parametrizations.weight_norm(poptorch.BeginBlock(nn.Linear(2, 2), "a"))


class Double(nn.Module):
    def forward(self, x):
        return 2 * x


def parametrized(order):
    """A layer that computes tensors and begins a block: ``w``, ``b`` and ``|`` in that order."""
    layer = nn.Linear(2, 2)
    for step in order:
        if step == "|":
            poptorch.BeginBlock(layer, "a", ipu_id=0)
        else:
            name = {"w": "weight", "b": "bias"}[step]
            parametrize.register_parametrization(layer, name, Double())
    return layer


ORDERS = ["w|", "|w", "w|b", "wb|", "|wb"]


@pytest.mark.parametrize("order", ORDERS)
def test_layers_that_compute_tensors_take_and_leave_them_in_a_block(order):
    layer, x = parametrized(order), torch.randn(3, 2)
    expected = layer(x)
    assert copy.deepcopy(layer)._user_id == "a"
    for name in list(layer.parametrizations):
        parametrize.remove_parametrizations(layer, name)
    assert layer._user_id == "a" and "BeginBlock" in poptorch.module_repr(layer)
    torch.testing.assert_close(layer(x), expected)
    poptorch.removeBlocks(layer)
    assert type(layer) is nn.Linear


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_of_layers_that_compute_tensors_are_removed_and_begun_again(order):
    layer, x = parametrized(order), torch.randn(3, 2)
    expected = layer(x)
    poptorch.removeBlocks(layer)
    assert "BeginBlock" not in poptorch.module_repr(layer)
    assert torch.equal(layer(x), expected)
    poptorch.BeginBlock(layer, "b")
    assert layer._user_id == "b" and torch.equal(layer(x), expected)
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(layer)


class Ends(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        layer.__dict__["parent"] = self

    def forward(self, x):
        return poptorch.identity_loss(self.layer(x), "mean")


@pytest.mark.parametrize("order", ["|", *ORDERS])
def test_a_file_has_annotated_layers(order, tmp_path):
    net, x = Ends(parametrized(order)), torch.randn(3, 2)
    model = poptorch.trainingModel(net, quiet_options())
    path = model.compileAndExport(tmp_path / "net.poptorch", x)
    again = poptorch.load(path)
    assert torch.equal(model(x), again(x)) and torch.equal(model(x), again(x))
    layer = again.model.layer
    assert (layer._user_id, layer._ipu_id) == ("a", 0) and layer.parent is again.model
    for name in order.replace("|", ""):
        parametrize.remove_parametrizations(layer, {"w": "weight", "b": "bias"}[name])
    poptorch.removeBlocks(layer)
    assert type(layer) is nn.Linear
