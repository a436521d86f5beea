"""Which names outside of it ``forward`` may read."""

import argparse
import functools
import math
import sys
import types

import torch
from torch import nn

import poptorch
from poptorch._guards import globals_read
from poptorch._guards.host_randomness import Draws
from tests.capture.common import Function
from tests.helpers import quiet_options

SCALE, SIZES, UNREAD, COUNT = 2.0, [1, 2], 3.0, 0
WEIGHT, SEEN = torch.ones(2), []
ARGS, SPACE = argparse.Namespace(scale=2.0, more=1), types.SimpleNamespace(scale=2.0)


class Config:
    scale = 2.0

    def __init__(self):
        self.factor, self.deep = 2.0, SPACE


CONFIG = Config()


def names(function, *arguments, module=None):
    module = Function(function) if module is None else module
    return {name.text for name in found(module, arguments) if not callable(name.before.value)}


def objects(function, module=None):
    """Objects that names lead to; reads of their attributes are recorded while forward runs."""
    module = Function(function) if module is None else module
    return {path for _, path in globals_read.names_outside(module, (), Draws())[1]}


def found(module, arguments=()):
    """The names that may be read."""
    names, _ = globals_read.names_outside(module, arguments, Draws())
    return [name for name in names if name.before is not None]


def helper(x):
    return x * SCALE


def recursive(x, n):
    return x if n == 0 else recursive(x * SIZES[0], n - 1)


def test_globals():
    assert names(lambda m, x: x * SCALE + SIZES[1] + WEIGHT) == {"SCALE", "SIZES", "WEIGHT"}
    assert names(lambda m, x: x * math.pi + torch.float32.itemsize) == set()
    assert names(lambda m, x: x * sys.maxsize) == set()  # a module without a file


def test_attributes_of_what_is_global():
    assert names(lambda m, x: x * SPACE.scale * Config.scale) == {
        "SPACE.scale", "Config.scale"}
    assert objects(lambda m, x: x * CONFIG.deep.scale * ARGS.scale) == {"CONFIG", "ARGS"}


def test_functions_that_are_named():
    assert names(lambda m, x: helper(x) + recursive(x, 2)) == {"SCALE", "SIZES"}
    assert names(lambda m, x: [helper(y) for y in x]) == {"SCALE"}
    assert names(lambda m, x: READER.read(x)) == {"SCALE", "SIZES"}
    assert names(functools.partial(lambda m, x: x * SCALE)) == {"SCALE"}


def test_arguments_that_are_functions():
    assert names(lambda m, x, f: f(x), 1.0, helper) == {"SCALE"}
    assert names(lambda m, x, f: f[0](x), [functools.partial(helper)]) == {"SCALE"}


def test_methods_and_properties():
    class Inner(nn.Module):
        @property
        def scale(self):
            return SCALE

        @staticmethod
        def add(x):
            return x + SIZES[0]

    class Net(Inner):
        def forward(self, x):
            return self.add(x * self.scale) + self.late(x)

        def late(self, x):
            return x + ARGS.more

    assert names(None, module=nn.Sequential(Net())) == {"SCALE", "SIZES", "ARGS"}


def test_variables_of_functions_around():
    scale, unread, space = 2.0, 1.0, types.SimpleNamespace(k=1.0)

    def inner(x):
        return x * scale + space.k

    assert names(lambda m, x: inner(x)) == {"scale", "space.k"}
    assert unread == 1.0
    functions = [lambda m, x, k=k: (lambda y: y * k)(x) for k in range(2)]
    assert names(functions[0]) == set()


def sets(m, x):
    global COUNT
    COUNT += 1
    SEEN.append(COUNT)
    return x * COUNT * SCALE


def test_what_the_code_itself_changes():
    names, _ = globals_read.names_outside(Function(sets), (), Draws())
    assert {name.text for name in names if name.before is not None} == {"SEEN", "SCALE"}
    sets(None, torch.ones(1))
    assert [name.text for name in names if name.is_unchanged()] == ["SCALE"]
    (count,) = [name for name in names if name.own is not None]
    first = sets.__code__.co_firstlineno
    assert sorted(line - first for _, line, _ in count.readers()) == [2, 3, 4]
    assert count.counting()[1] == first + 2
    SEEN.clear()


def test_variables_without_a_value():
    def inner(x):
        return x * late

    assert names(lambda m, x: inner(x)) == set()
    late = 1.0
    assert names(lambda m, x: inner(x)) == {"late"}


def test_values_that_are_gone():
    space = types.SimpleNamespace(a=types.SimpleNamespace(b=1.0))
    module = Function(lambda m, x: x * space.a.b)
    (name,) = found(module)
    assert name.text == "space.a.b" and name.value() == 1.0 and name.places() is None
    del space.a
    assert name.before.difference(name.value(), name.text) is not None


def several(m, x):
    from a_package import scale, shift  # what is tested
    from a_package.inner import scale as other  # what is tested
    scaled = x * scale + shift
    return scaled * other


def by_name(m, x):
    import a_package  # what is tested
    import a_package.inner as inner  # what is tested
    return x * inner.scale + a_package.shift


def relative(m, x):
    from . import shift  # what is tested
    from .inner import scale  # what is tested
    return x * scale + shift


def test_imports_inside(monkeypatch):
    package, inner = types.ModuleType("a_package"), types.ModuleType("a_package.inner")
    package.inner, package.__file__, inner.__file__ = inner, __file__, __file__
    package.scale, package.shift, inner.scale = 2.0, 1.0, 3.0
    for module in (package, inner):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert names(several) == {"a_package.scale", "a_package.shift", "a_package.inner.scale"}
    assert names(by_name) == {"a_package.inner.scale", "a_package.shift"}
    monkeypatch.setitem(globals(), "__package__", "a_package")
    assert names(relative) == {"a_package.shift", "a_package.inner.scale"}


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * SCALE

    @staticmethod
    def backward(ctx, gradient):
        return gradient * SIZES[0]


class Reader:
    def __init__(self):
        self.factor = 2.0

    def read(self, x):
        return x * SCALE

    def unread(self, x):
        return x * UNREAD

    def __call__(self, x):
        return x * self.factor * SIZES[0]


class Setter:
    def add(self, x):
        global SCALE
        SCALE = x


class Counter:
    def add(self, x):
        global COUNT
        COUNT += x


class Layer(nn.Module):
    def forward(self, x):
        return x * SCALE


class Table:
    @staticmethod
    def scaled(x):
        return x * SCALE

    @classmethod
    def sized(cls, x):
        return cls.scaled(x) * SIZES[0]


class Sizes(dict):
    def __init__(self):
        super().__init__(scale=SCALE)


FUNCTIONS, READER = {"helper": helper, "reader": Reader()}, Reader()


def test_functions_with_a_gradient_of_their_own():
    apply = Doubled.apply
    assert names(lambda m, x: Doubled.apply(x)) == {"SCALE", "SIZES"}
    assert names(lambda m, x: apply(x)) == {"SCALE", "SIZES"}


def test_objects_that_forward_makes():
    assert names(lambda m, x: Reader().read(x)) == {"SCALE", "SIZES"}
    assert names(lambda m, x: Layer()(x)) == {"SCALE"}


def test_methods_of_classes_in_c():
    fromkeys = Sizes.fromkeys
    assert names(lambda m, x: x * len(Sizes.fromkeys("ab"))) == {"SCALE"}
    assert names(lambda m, x: x * len(fromkeys("ab"))) == {"SCALE"}


def test_methods_of_classes():
    assert names(lambda m, x: Table.scaled(x)) == {"SCALE"}
    assert names(lambda m, x: Table.sized(x)) == {"SCALE", "SIZES"}


def test_functions_in_containers():
    assert names(lambda m, x: FUNCTIONS["helper"](x)) == {"FUNCTIONS", "SCALE", "SIZES"}


def test_objects_that_modules_hold():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.held = [{"a": Reader()}]

        def forward(self, x):
            return self.held[0]["a"].read(x)

    assert names(None, module=Net()) == {"SCALE", "SIZES"}


def test_what_a_method_sets_that_forward_may_not_call():
    net = Function(lambda m, x: x.add(1.0) * SCALE)
    net.setter = Setter()
    assert names(None, module=net) == {"SCALE"}


def test_what_such_a_method_reads_and_sets():
    net = Function(lambda m, x: x.add(1.0) * SCALE)
    net.counter = Counter()
    assert names(None, module=net) == {"SCALE"}


def test_hooks_of_parameters_and_modules():
    net, reader, other = nn.Sequential(nn.Linear(2, 2)), Reader(), Reader()
    net[0].weight.register_hook(lambda gradient: gradient * SCALE)
    net[0].bias.register_hook(reader)
    net[0].register_forward_hook(lambda module, inputs, output: output * ARGS.scale)
    assert names(None, module=net) == {"SCALE", "SIZES", "ARGS"}
    assert objects(None, net) == {"the hook of 0.bias", "ARGS"}
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[0].weight.register_hook(reader)
    net[1].weight.register_hook(other.read)
    assert names(None, module=net) == {"SIZES", "SCALE"}
    assert objects(None, net) == {"the hook of 0.weight", "the hook of 1.weight.__self__"}


class Outside:
    def __init__(self):
        self.shift, self.unused = 1.0, 0


OUTSIDE, SCALES = Outside(), {"scale": 2.0}


class Outward(torch.nn.Module):
    def forward(self, x):
        return x * SCALES["scale"] + OUTSIDE.shift


def test_a_program_from_a_file_follows_what_it_reads_outside(tmp_path, monkeypatch):
    x = torch.ones(2)
    model = poptorch.inferenceModel(Outward(), quiet_options())
    model(x)
    loaded = poptorch.load(model.save(tmp_path / "outward.poptorch"))
    monkeypatch.setitem(SCALES, "scale", 5.0)
    assert torch.equal(loaded(x), Outward()(x))
    monkeypatch.setattr(OUTSIDE, "shift", -1.0)
    assert torch.equal(loaded(x), Outward()(x))
    monkeypatch.setattr(OUTSIDE, "unused", 3)
    loaded(x)
    assert [info.reason.split(" ")[0] for info in loaded.programs()] == [
        "loaded", "SCALES['scale']", "OUTSIDE.shift"]
