"""Non-tensor arguments are compiled in: changed between calls, they are an error."""

from array import array
from collections import ChainMap, UserDict, UserList
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from types import MappingProxyType, SimpleNamespace

import numpy
import pytest
import torch
from torch import nn

import poptorch
from poptorch import Error
from tests.helpers import quiet_options

X = torch.ones(3)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, c):
        return self.function(x, c)


def compiled(function):
    return poptorch.inferenceModel(Function(function), quiet_options())


class Config:
    def __init__(self, scale=2.0):
        self.scale, self.unread = scale, 0

    def times(self, x):
        return x * self.scale


class WithSlots:
    __slots__ = ("scale",)

    def __init__(self, scale=2.0):
        self.scale = scale

    def __eq__(self, other):
        return isinstance(other, WithSlots)

    __hash__ = None


class Named(Config):
    def __eq__(self, other):
        return isinstance(other, Named)

    __hash__ = None


def set_scale(config):
    config.scale = 3.0


SCALE = "mismatch for c{}: expected 2.0 but got 3.0. Values other than tensors are compiled in: " \
        "pass a tensor for a number that changes. " \
        "Set Options.recompilation(shapes=True) to compile the model again for other arguments, " \
        "or call destroy() first."
CHANGES = {
    "object": (Config, lambda x, c: x * c.scale, set_scale, SCALE.format(".scale")),
    "in a list": (lambda: [Config()], lambda x, c: x * c[0].scale, lambda c: set_scale(c[0]),
                  SCALE.format(".0.scale")),
    "in a dictionary": (lambda: {"a": (Config(),)}, lambda x, c: x * c["a"][0].scale,
                        lambda c: set_scale(c["a"][0]), SCALE.format(".a.0.scale")),
    "namespace": (lambda: SimpleNamespace(scale=2.0), lambda x, c: x * c.scale, set_scale,
                  SCALE.format(".scale")),
    "in a namespace": (lambda: SimpleNamespace(of=[Config()]), lambda x, c: x * c.of[0].scale,
                       lambda c: set_scale(c.of[0]), SCALE.format(".of[0].scale")),
    "partial": (lambda: partial(torch.mul, other=2.0), lambda x, c: c(x),
                lambda c: c.keywords.update(other=3.0), SCALE.format(".keywords['other']")),
    "method": (lambda: Config().times, lambda x, c: c(x), lambda c: set_scale(c.__self__),
               SCALE.format(".__self__.scale")),
    "set": (lambda: {1}, lambda x, c: x * len(c), lambda c: c.add(2),
            "mismatch for c: expected {1} but got {1, 2}"),
    "bytearray": (lambda: bytearray(b"a"), lambda x, c: x * len(c), lambda c: c.append(98),
                  "mismatch for c: expected bytearray(b'a') but got bytearray(b'ab')"),
    "array": (lambda: array("b", [65]), lambda x, c: x * len(c), lambda c: c.append(66),
              "mismatch for c: expected array('b', [65]) but got array('b', [65, 66])"),
    "slots": (WithSlots, lambda x, c: x * c.scale, set_scale, SCALE.format(".scale")),
    "in an array": (lambda: SimpleNamespace(scale=numpy.full(2, 2.0)),
                    lambda x, c: x * c.scale[1], lambda c: c.scale.fill(3),
                    "mismatch for c.scale: expected array([2., 2.]) but got array([3., 3.])"),
    "user dict": (lambda: UserDict(k=2.0), lambda x, c: x * c["k"], lambda c: c.update(k=3.0),
                  SCALE.format(".data['k']")),
    "user list": (lambda: UserList([2.0]), lambda x, c: x * c[0], lambda c: c.__setitem__(0, 3.0),
                  SCALE.format(".data[0]")),
    "chain": (lambda: ChainMap({"k": 2.0}), lambda x, c: x * c["k"], lambda c: c.update(k=3.0),
              SCALE.format(".maps[0]['k']")),
    "read-only": (lambda: MappingProxyType({"k": Config()}), lambda x, c: x * c["k"].scale,
                  lambda c: set_scale(c["k"]), SCALE.format("['k'].scale")),
    "view": (lambda: {"k": Config()}.values(), lambda x, c: x * next(iter(c)).scale,
             lambda c: set_scale(next(iter(c))), SCALE.format("[0].scale")),
    "gone": (Config, lambda x, c: x * c.scale, lambda c: delattr(c, "scale"),
             "mismatch for c.scale: expected 2.0 but got nothing"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_place(name):
    make, function, change, words = CHANGES[name]
    model, value = compiled(function), make()
    model(X, value), model(X, c=value)
    change(value)
    for _ in range(2):
        with pytest.raises(Error) as caught:
            model(X, value)
        assert words in caught.value.message
        assert caught.value.message.startswith("[arguments] ")
    if name != "gone":
        model.destroy()
        assert torch.equal(model(X, value), function(X, value))


@pytest.mark.parametrize(("function", "first", "other"), [
    (lambda x, c: x * c.stop, range(0, 3, 2), range(0, 4, 2)),
    (lambda x, c: x / float(c), Decimal("0"), Decimal("-0"))])
def test_equal_constants_that_are_not_the_same(function, first, other):
    model = compiled(function)
    assert torch.equal(model(X, first), function(X, first))
    with pytest.raises(Error) as caught:
        model(X, other)
    assert f"mismatch for c: expected {first!r} but got {other!r}" in caught.value.message


@pytest.mark.parametrize("make", [
    lambda: UserDict(k=2.0), lambda: ChainMap({"k": 2.0}), lambda: MappingProxyType({"k": 2.0})])
def test_others_that_hold_the_same(make):
    model = compiled(lambda x, c: x * c["k"])
    for _ in range(2):
        assert torch.equal(model(X, make()), X * 2)


def test_what_forward_does_not_read_may_change():
    model, config = compiled(lambda x, c: x * c.scale), Config()
    model(X, config)
    config.unread += 1
    assert model(X, config)[0] == 2.0


def test_equal_values_are_no_change():
    """Also when those of the first call have become others."""
    model, first = compiled(lambda x, c: x * c.scale), SimpleNamespace(scale=2.0)
    model(X, first)
    first.scale = 3.0
    assert model(X, SimpleNamespace(scale=2.0))[0] == 2.0
    model = compiled(lambda x, c: x * len(c))
    model(X, {(1, 2), (3, 4)})
    assert model(X, {(3, 4), (1, 2)})[0] == 2.0
    model = compiled(lambda x, c: c(x))
    model(X, partial(torch.mul, other=2.0))
    assert model(X, partial(torch.mul, other=2.0))[0] == 2.0


def test_objects_that_say_they_are_equal():
    model = compiled(lambda x, c: x * c.scale)
    model(X, Named())
    assert model(X, Named())[0] == 2.0
    with pytest.raises(Error, match=r"mismatch for c\.scale: expected 2\.0 but got 3\.0"):
        model(X, Named(3.0))
    model = compiled(lambda x, c: x * c.scale)
    model(X, WithSlots())
    assert model(X, WithSlots())[0] == 2.0
    with pytest.raises(Error, match=r"mismatch for c\.scale: expected 2\.0 but got 3\.0"):
        model(X, WithSlots(3.0))


# -- attributes of containers, in addition to their parts --------------------------------------


class List(list):
    pass


class Dict(dict):
    pass


class Slots(list):
    __slots__ = ("scale",)


@dataclass
class Pair:
    x: torch.Tensor


class Parsed:
    def __init__(self, x):
        self.x = x


class Parser(poptorch.ICustomArgParser):
    def yieldTensors(self, struct):
        yield struct.x

    def reconstruct(self, original_structure, tensor_iterator):
        made = Parsed(next(tensor_iterator))
        made.__dict__.update({k: v for k, v in vars(original_structure).items() if k != "x"})
        return made


poptorch.registerCustomArgParser(Parsed, Parser())

CONTAINERS = {
    "list": (lambda: List([X]), lambda c: c[0]),
    "dictionary": (lambda: Dict(x=X), lambda c: c["x"]),
    "slots": (lambda: Slots([X]), lambda c: c[0]),
    "dataclass": (lambda: Pair(X), lambda c: c.x),
    "parsed": (lambda: Parsed(X), lambda c: c.x),
}


def with_attributes(container, **attributes):
    for name, value in attributes.items():
        setattr(container, name, value)
    return container


@pytest.mark.parametrize("name", CONTAINERS)
def test_attributes_of_containers(name):
    make, part = CONTAINERS[name]
    model = compiled(lambda x, c: x * part(c[0]) * c[0].scale)
    first = with_attributes(make(), scale=2.0)
    model(X, [first]), model(X, [with_attributes(make(), scale=2.0)])
    with pytest.raises(Error, match=r"mismatch for c\.0\.scale: expected 2\.0 but got 3\.0"):
        model(X, [with_attributes(make(), scale=3.0)])
    with pytest.raises(Error, match=r"mismatch for c\.0\.scale: expected 2\.0 but got nothing"):
        model(X, [make()])
    first.scale = 3.0
    with pytest.raises(Error, match=r"mismatch for c\.0\.scale: expected 2\.0 but got 3\.0"):
        model(X, [first])
    first.scale = 2.0
    assert model(X, [first])[0] == 2.0


def test_attributes_of_containers_that_forward_does_not_read():
    model = compiled(lambda x, c: c[1].x * x)
    for name in ("a", "b"):
        parsed = with_attributes(Parsed(X), name=name)
        assert model(X, [with_attributes(List(), name=name), parsed])[0] == 1.0


def test_what_attributes_of_containers_hold():
    model = compiled(lambda x, c: c[0] * c.of[0].scale)
    first = with_attributes(List([X]), of=[Config()])
    model(X, first), model(X, with_attributes(List([X]), of=[Config()]))
    with pytest.raises(Error, match=r"mismatch for c\.of\[0\]\.scale: expected 2\.0 but got 3\.0"):
        model(X, with_attributes(List([X]), of=[Config(3.0)]))
    first.of[0].scale = 3.0
    with pytest.raises(Error, match=r"mismatch for c\.of\[0\]\.scale: expected 2\.0 but got 3\.0"):
        model(X, first)


def test_attributes_of_containers_from_a_file(tmp_path):
    model = compiled(lambda x, c: c[0] * c.scale)
    model(X, with_attributes(List([X]), scale=2.0, unread=0))
    path = model.save(tmp_path / "net.poptorch", export_model=False)
    again = compiled(lambda x, c: x)
    again.loadExecutable(path)
    assert again(X, with_attributes(List([X]), scale=2.0, unread=1))[0] == 2.0
    with pytest.raises(Error, match=r"mismatch for c\.scale: expected 2\.0 but got 3\.0"):
        again(X, with_attributes(List([X]), scale=3.0))
