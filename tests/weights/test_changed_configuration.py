"""Configuration that ``forward`` reads is compiled in: a change compiles the model again."""

import argparse
import functools
import logging
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options


class Vision:
    def __init__(self):
        self.scale, self.name = 2.0, "vision"


class Config:
    """With parts, and an attribute that is computed."""

    def __init__(self):
        self.scale, self.label, self.sizes = 2.0, "config", [1, 2]
        self.vision = Vision()

    @property
    def doubled(self):
        return self.vision.scale * 2


@dataclass
class Layer:
    width: int = 3
    extra: dict = field(default_factory=lambda: {"bias": 1.0})


class Slots:
    __slots__ = ("scale",)

    def __init__(self):
        self.scale = 1.0


class OtherSlots(Slots):
    __slots__ = ()


class Odd:
    """Compares as arrays do."""

    def __eq__(self, other):
        return torch.ones(2) == 1

    __hash__ = object.__hash__


class Inner(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config

    def forward(self, x):
        return x * self.config.scale + self.config.sizes[1] + self.config.doubled


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.inner = nn.Linear(2, 2), Inner(Config())
        self.sizes, self.table = [1, 2], {"k": 1, "deep": {"list": [1.0, (2, [3.0])]}}
        self.kinds, self.queue = {"a", "b"}, deque([1, 2])
        self.ordered = OrderedDict(a=1, b=2)
        self.space = SimpleNamespace(scale=1.0, more=SimpleNamespace(items=[1]))
        self.args = argparse.Namespace(scale=1.0)
        self.layers = [Layer(), Layer(5)]
        self.act, self.odd, self.slots = torch.relu, [Odd()], Slots()
        self.dtype, self.whole, self.nothing = torch.float32, 2, float("nan")
        self.calls, self.history, self.stats = 0, [], SimpleNamespace(calls=0)
        self.meter = Vision()
        self.numbers, self.number = numpy.ones(2), numpy.float32(1)
        self.mixed = numpy.array([1, None], dtype=object)

    def forward(self, x):
        self.calls += 1
        self.history.append(self.calls)
        self.stats.calls += 1
        self.meter.scale = self.meter.scale + 1
        y = self.act(self.inner(self.linear(x.to(self.dtype))))
        y = y * sum(self.sizes) + self.table["k"] + self.table["deep"]["list"][1][1][0]
        y = y + len(self.kinds) + self.queue[0] + self.ordered["a"] + self.nothing
        y = y * self.space.scale + self.space.more.items[0] + self.args.scale * self.whole
        y = y + sum(layer.width * layer.extra["bias"] for layer in self.layers)
        return y + len(self.odd) + self.slots.scale + self.numbers[0] * self.number * self.mixed[0]


def sets(owner, name, value):
    return lambda net: setattr(eval(f"net.{owner}" if owner else "net"), name, value)


CHANGES = {
    "append": (lambda net: net.sizes.append(3), "self.sizes changed from [1, 2] to [1, 2, 3]"),
    "item": (lambda net: net.sizes.__setitem__(1, 7), "self.sizes[1] changed from 2 to 7"),
    "key": (lambda net: net.table.update(k=2), "self.table['k'] changed from 1 to 2"),
    "order": (lambda net: net.table.update(k=net.table.pop("k")), "self.table changed from {"),
    "nested": (lambda net: net.table["deep"]["list"][1][1].append(0),
               "self.table['deep']['list'][1][1] changed from [3.0] to [3.0, 0]"),
    "set": (lambda net: net.kinds.add("c"), "self.kinds changed from {'a', 'b'} to"),
    "deque": (lambda net: net.queue.rotate(), "self.queue[0] changed from 1 to 2"),
    "ordered": (lambda net: net.ordered.move_to_end("a"),
                 "self.ordered changed from {'a': 1, 'b': 2} to"),
    "namespace": (lambda net: setattr(net.space, "scale", 3.0),
                 "self.space.scale changed from 1.0 to"),
    "deep namespace": (lambda net: net.space.more.items.append(2),
                 "self.space.more.items changed from [1] to [1, 2]"),
    "arguments": (lambda net: setattr(net.args, "scale", 3.0),
                 "self.args.scale changed from 1.0 to"),
    "config": (lambda net: setattr(net.inner.config, "scale", 3.0),
               "self.inner.config.scale changed from 2.0 to 3.0"),
    "list of a config": (lambda net: net.inner.config.sizes.insert(0, 9),
                         "self.inner.config.sizes changed from [1, 2] to"),
    "part of a config": (lambda net: setattr(net.inner.config.vision, "scale", 5.0),
                         "self.inner.config.vision.scale changed from 2.0 to"),
    "deleted": (lambda net: delattr(net.inner.config, "scale"),
                "self.inner.config.scale changed"),
    "another config": (lambda net: setattr(net.inner, "config", Config()),
                 "self.inner.config changed from <"),
    "dataclass": (lambda net: setattr(net.layers[1], "width", 1),
                 "self.layers[1].width changed from 5 to"),
    "dict of a dataclass": (lambda net: net.layers[0].extra.update(bias=0.0),
                            "self.layers[0].extra['bias'] changed from 1.0 to"),
    "function": (lambda net: setattr(net, "act", torch.tanh), "self.act changed from <built-in"),
    "object": (lambda net: net.odd.__setitem__(0, Odd()), "self.odd[0] changed from <"),
    "kind of number": (lambda net: setattr(net, "whole", 2.0), "self.whole changed from 2 to 2.0"),
    "slots": (lambda net: setattr(net.slots, "scale", 3.0),
                 "self.slots.scale changed from 1.0 to 3.0"),
    "another object with slots": (lambda net: setattr(net, "slots", OtherSlots()),
                                  "self.slots changed from <"),
    "array": (lambda net: net.numbers.fill(2),
                 "self.numbers changed from array([1., 1.]) to array([2., 2.])"),
    "array of another type": (lambda net: setattr(net, "numbers", numpy.ones(2, "float32")),
                              "self.numbers changed from array([1., 1.]) to"),
    "array of objects": (lambda net: net.mixed.__setitem__(0, 3),
                         "self.mixed[0] changed from 1 to 3"),
    "number of NumPy": (lambda net: setattr(net, "number", numpy.float32(2)),
                        "self.number changed from np.float32(1.0) to"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_model_is_compiled_again(change):
    apply, words = CHANGES[change]
    net, x = Net(), torch.ones(2, 2)
    model = poptorch.inferenceModel(net, quiet_options())
    model(x), model(x)
    apply(net)
    if change == "deleted":
        with pytest.raises(AttributeError, match="scale"):
            model(x)
        net.inner.config.scale = 3.0
    for _ in range(2):
        torch.testing.assert_close(model(x), net(x).detach(), equal_nan=True)
    assert words in reason(model) and len(model.programs()) == 2


def reason(model) -> str:
    """Why the last program was compiled."""
    return model.programs()[-1].reason


def test_what_forward_does_not_read_or_changes_itself_may_change():
    net, x = Net(), torch.ones(2, 2)
    model = poptorch.inferenceModel(net, quiet_options())
    y = model(x)
    assert (net.calls, net.history, net.stats.calls, net.meter.scale) == (1, [1], 1, 3.0)
    net.inner.config.label, net.inner.config.vision.name = "other", "other"
    net.inner.config.more = 5
    net.calls, net.stats.calls, net.meter.scale = 7, 7, 7.0
    net.history.append(7)
    net.layers[0].more = 1
    for _ in range(2):
        torch.testing.assert_close(model(x), y, equal_nan=True)


def test_equal_values_are_no_change():
    net, x = Net(), torch.ones(2, 2)
    model = poptorch.inferenceModel(net, quiet_options())
    y = model(x)
    net.sizes, net.table["deep"] = [1, 2], {"list": [1.0, (2, [3.0])]}
    net.queue, net.kinds, net.nothing = deque([1, 2]), {"b", "a"}, float("nan")
    net.inner.config.sizes, net.inner.config.scale = [1, 2], float("2")
    net.numbers, net.number, net.slots = numpy.ones(2), numpy.float32(1), Slots()
    for _ in range(2):
        torch.testing.assert_close(model(x), y, equal_nan=True)
    net.sizes.append(3)  # of the new list
    model(x)
    assert reason(model).startswith("self.sizes changed from [1, 2] to [1, 2, 3]")
    net.sizes.pop()
    torch.testing.assert_close(model(x), y, equal_nan=True)
    assert len(model.programs()) == 2


class Plain(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.held = held

    def forward(self, x):
        return x * type(self).factor(self.held)


def model_of(held, factor):
    net = type("Of", (Plain,), {"factor": staticmethod(factor)})(held)
    return net, poptorch.inferenceModel(net, quiet_options())


class Defaults:
    """Has from its class what an object may set."""

    scale = 2.0

    def __init__(self):
        self.own = 1.0

    def factor(self):
        return self.own


class OfClass(Plain):
    """Reads what its class has, and what there may be."""

    whole = 2.0

    def forward(self, x):
        return x * self.whole * (self.held if hasattr(self, "more") else 1.0) * self.twice()

    def twice(self):
        return 2.0


class OfClassAndObject(OfClass):
    def forward(self, x):
        return x * self.whole * self.held.scale


NEW = {
    "that the module has not": (lambda: OfClass(3.0), lambda net: setattr(net, "more", 1), "more"),
    "that the class of the module has": (
        lambda: OfClass(3.0), lambda net: setattr(net, "whole", 3.0), "whole"),
    "a method of the module": (
        lambda: OfClass(3.0), lambda net: setattr(net, "twice", lambda: 3.0), "twice"),
    "that an object has not": (
        lambda: model_of(Defaults(), lambda held: 1.0 + hasattr(held, "more"))[0],
        lambda net: setattr(net.held, "more", 1), "held.more"),
    "that the class of an object has": (
        lambda: model_of(Defaults(), lambda held: held.scale)[0],
        lambda net: setattr(net.held, "scale", 3.0), "held.scale"),
    "a method of an object": (
        lambda: model_of(Defaults(), lambda held: held.factor())[0],
        lambda net: setattr(net.held, "factor", lambda: 3.0), "held.factor"),
}


@pytest.mark.parametrize("change", NEW)
def test_an_attribute_that_was_not_there(change):
    make, apply, path = NEW[change]
    net, x = make(), torch.ones(2)
    model = poptorch.inferenceModel(net, quiet_options())
    y = model(x)
    assert torch.equal(model(x), y)
    apply(net)
    assert torch.equal(model(x), net(x))
    assert reason(model).startswith(f"self.{path} changed from nothing to ")


@pytest.mark.parametrize("name, path", [("whole", "whole"), ("scale", "held.scale")])
def test_what_a_class_has(name, path):
    net, x = OfClassAndObject(Defaults()), torch.ones(2)
    model = poptorch.inferenceModel(net, quiet_options())
    y = model(x)
    assert torch.equal(model(x), y)
    owner = OfClass if name == "whole" else Defaults
    was = getattr(owner, name)
    setattr(owner, name, 3.0)
    try:
        assert torch.equal(model(x), net(x))
        assert reason(model).startswith(f"self.{path} changed from 2.0 to 3.0")
    finally:
        setattr(owner, name, was)
    assert torch.equal(model(x), y)


@pytest.mark.parametrize("lead", [
    lambda held: held.factor, lambda held: functools.partial(Defaults.factor, held),
    lambda held: functools.partial(lambda objects, times: objects[0].factor() * times, [held],
                                   times=1)])
def test_objects_behind_methods_and_partial_functions(lead):
    held = Defaults()
    net, model = model_of(lead(held), lambda function: function())
    x = torch.ones(2)
    assert torch.equal(model(x), x)
    held.own = 3.0
    assert torch.equal(model(x), x * 3)
    assert ".own changed from 1.0 to 3.0" in reason(model)


def test_a_cached_property_of_tensors_may_be_computed_later():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2))

        @functools.cached_property
        def doubled(self):
            return self.w * 2

        def forward(self, x):
            return x * self.doubled

    net, x = Cached(), torch.ones(2)
    model = poptorch.inferenceModel(net, quiet_options())
    y = model(x)
    assert torch.equal(net(x), y) and torch.equal(model(x), y)


def test_loggers_are_left_alone():
    held = logging.getLogger("poptorch.test_changed_configuration")
    _, model = model_of(held, lambda log: log.debug("forward runs") or 2.0)
    y = model(torch.ones(2))
    held.isEnabledFor(logging.INFO), held.setLevel(logging.ERROR)
    assert torch.equal(model(torch.ones(2)), y)


def test_classes_are_as_they_were_also_after_an_error():
    class Base:
        def __init__(self):
            self.x = 1.0

    class Derived(Base):
        def __getattribute__(self, name):
            return super().__getattribute__(name)

    before = [dict(vars(cls)) for cls in (Base, Derived)]
    for factor in (lambda held: held[0].x + held[1].x, lambda held: held[0].x + held[1].y):
        net, model = model_of([Derived(), Base()], factor)
        try:
            model(torch.ones(2))
        except AttributeError:
            assert factor is not None and not model.isCompiled()
        assert [dict(vars(cls)) for cls in (Base, Derived)] == before


def test_other_names_of_attributes():
    class Renamed:
        names = {"factor": "scale"}

        def __init__(self):
            self.scale, self.unread = 2.0, 1

        def __getattribute__(self, name):
            names = super().__getattribute__("names")
            return super().__getattribute__(names.get(name, name))

    held = Renamed()
    _, model = model_of(held, lambda held: held.factor)
    y = model(torch.ones(2))
    assert torch.equal(model(torch.ones(2)), y)
    held.scale = 3.0
    assert torch.equal(model(torch.ones(2)), torch.full((2,), 3.0))
    assert reason(model) == "self.held.__dict__['scale'] changed from 2.0 to 3.0"


def test_a_container_that_holds_itself():
    held = [2.0]
    held.append(held)
    net, model = model_of(held, lambda held: held[1][0])
    y = model(torch.ones(2))
    assert torch.equal(model(torch.ones(2)), y)
    held[0] = 3.0
    assert torch.equal(model(torch.ones(2)), torch.full((2,), 3.0))
    assert reason(model).startswith("self.held[0] changed from 2.0 to 3.0")


def test_a_class_that_cannot_be_changed_is_compared_as_a_whole():
    class Closed(type):
        def __setattr__(cls, name, value):
            raise AttributeError(name)

    class Fixed(metaclass=Closed):
        def __init__(self):
            self.x, self.unread = 2.0, 1

    held = Fixed()
    _, model = model_of(held, lambda held: held.x)
    model(torch.ones(2))
    held.unread = 2
    model(torch.ones(2))
    assert reason(model) == "self.held.__dict__['unread'] changed from 1 to 2"


def test_modules_in_containers_keep_their_places():
    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 2)
            self.route = [self.first, self.last]

        def forward(self, x):
            for layer in self.route:
                x = layer(x)
            return x

    net, x = Routed(), torch.ones(2, 2)
    model = poptorch.inferenceModel(net, quiet_options())
    y = model(x)
    assert torch.equal(model(x), y)
    net.route.reverse()
    torch.testing.assert_close(model(x), net(x).detach())
    assert reason(model).startswith("self.route[0] changed from Linear")


def test_objects_that_classes_hold():
    class Held(nn.Module):
        config, items = Vision(), [Vision()]

        def forward(self, x):
            return x * self.config.scale + self.items[0].scale

    model = poptorch.inferenceModel(Held(), quiet_options())
    assert torch.equal(model(torch.ones(2)), torch.full((2,), 4.0))
    Held.config.more = 1
    assert torch.equal(model(torch.ones(2)), torch.full((2,), 4.0))
    for held, path in ((Held.config, "config"), (Held.items[0], "items[0]")):
        held.scale = 3.0
        assert torch.equal(model(torch.ones(2)), torch.full((2,), 5.0))
        assert f"self.{path}.scale changed from" in reason(model) or path != "config"
        held.scale = 2.0
