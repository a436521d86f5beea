"""Objects that forward returns in addition to tensors."""

import functools
import operator
from array import array
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal

import poptorch
from poptorch import Error
from tests.helpers import quiet_options

X = torch.ones(2)


class Net(nn.Module):
    """Returns a tensor, and the result of a function for another tensor."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return x + 1, self.make(x * 2)


class Box:
    def __init__(self, held):
        self.held = held

    def method(self):
        return self.held


class Slots:
    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held


class Output(dict):
    """A dictionary with attributes."""


def beside(y):
    made = Output(a=1)
    made.box = Box(y)
    return made


def with_default(y):
    return lambda x, y=y: x + y


HIDING = {
    "a list in a namespace": (lambda y: SimpleNamespace(parts=[y], n=1),
                              r"a SimpleNamespace, which holds tensors \(parts\)"),
    "a dictionary in an object": (lambda y: Box({"y": y}), r"a Box, which .* tensors \(held\)"),
    "an object in an object": (lambda y: Box(Box(y)), r"a Box, which holds tensors \(held\)"),
    "a slot": (Slots, "a Slots, which holds tensors"),
    "a distribution of one": (lambda y: Independent(Normal(y, y + 1), 1),
                              r"a Independent, which holds tensors \(base_dist\)"),
    "a partial function": (lambda y: functools.partial(torch.add, y), "a partial, which holds"),
    "a variable of a function": (lambda y: lambda x: x + y, "a function, which holds tensors"),
    "a default": (with_default, "a function, which holds tensors"),
    "a method": (lambda y: Box(y).method, "a method, which holds tensors"),
    "a method of the tensor": (lambda y: y.add, "a builtin_function_or_method, which holds"),
    "an iterator in an object": (lambda y: Box(map(operator.neg, [y])),
                                 r"a Box, which holds tensors \(held\)"),
    "an object beside the parts": (beside,
                                   "a Output, which holds tensors in addition to its parts"),
    "a module": (lambda y: nn.Linear(2, 2), "a Linear, which holds tensors"),
}


@pytest.mark.parametrize("name", HIDING)
def test_tensors_in_objects_are_refused(name):
    make, words = HIDING[name]
    with pytest.raises(Error, match=rf"^\[output\] forward returned {words}.*Return tensors, "
                                    r"lists, tuples, dictionaries or dataclasses of them; or "
                                    r"register a parser for \w+ with "
                                    r"poptorch\.registerCustomArgParser\.$"):
        poptorch.inferenceModel(Net(make), quiet_options())(X)


class DynamicCache(Box):
    """Named as the one that models of transformers return."""


def test_a_cache_is_refused_with_advice():
    with pytest.raises(Error, match="Models of transformers return no cache with use_cache=False"):
        poptorch.inferenceModel(Net(lambda y: DynamicCache([y])), quiet_options())(X)


@pytest.mark.parametrize("make", [
    lambda y: Box([1, Box("a")]), lambda y: functools.partial(operator.add, 1),
    lambda y: Box, lambda y: lambda x: x * X, lambda y: torch, lambda y: torch.add])
def test_objects_without_tensors_are_returned(make):
    first, other = poptorch.inferenceModel(Net(make), quiet_options())(X)
    assert torch.equal(first, X + 1) and type(other) is type(make(X))


GLOBAL = {"a"}


@pytest.mark.parametrize("make", [
    lambda y: {"a"}, lambda y: bytearray(b"a"), lambda y: array("b", [1]),
    lambda y: numpy.zeros(1)])
def test_data_are_those_of_one_result(make):
    model, expected = poptorch.inferenceModel(Net(make), quiet_options()), make(X)
    for _ in range(2):
        found = model(X)[1]
        assert type(found) is type(expected) and list(found) == list(expected)
        found.add(2) if type(found) is set else found.__setitem__(0, 5)


class Tagged(nn.Module):
    def forward(self, x):
        return x + 1, {"a"}


def test_data_in_files_are_those_of_one_result(tmp_path):
    model = poptorch.inferenceModel(Tagged(), quiet_options())
    model(X)[1].add("b")
    again = poptorch.load(model.save(tmp_path / "net.poptorch"))
    for _ in range(2):
        found = again(X)[1]
        assert found == {"a"}
        found.add("b")


class Holding(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = {"seen": {"a"}}

    def forward(self, x, given):
        return x + 1, self.table["seen"], given, GLOBAL


def test_data_that_others_hold_stay_the_same():
    net, given = Holding(), {1}
    _, *found = poptorch.inferenceModel(net, quiet_options())(X, given)
    assert found[0] is net.table["seen"] and found[1] is given and found[2] is GLOBAL
