"""What forward counts in Python is counted once, which a warning says."""

import collections
import enum
import functools
import types

import numpy
import pytest
import torch

import poptorch
from tests.capture.common import Function
from tests.helpers import quiet_options


class Counter:
    made = 0

    def __init__(self):
        self.count, self.is_ready, self.items = 0, False, {"n": 0}

    def tick(self):
        self.count += 1
        return self.count

    @classmethod
    def make(cls):
        cls.made += 1
        return cls.made


class Bare:
    __slots__ = ("count",)

    def __init__(self):
        self.count = 0


class Kind(enum.Enum):
    FIRST, SECOND = 1, 2


COUNT, IS_READY, STATE, COUNTER = 0, False, {"n": 0}, Counter()


def told_of(module, capsys) -> str:
    model = poptorch.inferenceModel(module, quiet_options())
    results = [model(torch.ones(2)) for _ in range(2)]
    assert torch.equal(*results)
    return " ".join(capsys.readouterr().err.split())


def item(m, x):
    m.held["n"] += 1
    return x * m.held["n"]


def element(m, x):
    m.held[0] += 1
    return x * float(m.held[0])


def whole(m, x):
    m.held += 1
    return x * m.held


def by_variables(m, x):
    count = m.held
    following = count + 1
    m.held = following
    return x * count


def attribute(m, x):
    m.held.count += 1
    return x * m.held.count


def rotated(m, x):
    m.held.rotate(1)
    return x * m.held[0]


@pytest.mark.parametrize("make, forward, words", [
    (lambda: {"n": 0}, item, "held['n'], from 0 to 1"),
    (lambda: collections.UserDict(n=0), item, "held.data['n'], from 0 to 1"),
    (collections.Counter, item, "held, from {} to Counter({'n': 1})"),
    (lambda: collections.defaultdict(int), item, "held, from {} to"),
    (lambda: [0], element, "held[0], from 0 to 1"),
    (lambda: numpy.zeros(1), element, "held, from array([0.]) to array([1.])"),
    (lambda: bytearray(1), element, r"held, from bytearray(b'\x00') to"),
    (lambda: memoryview(bytearray(1)), element, r"held, from b'\x00' to b'\x01'"),
    (lambda: numpy.int64(0), whole, "self.held, from 0 to 1"),
    (lambda: 0, by_variables, "self.held, from 0 to 1"),
    (Counter, attribute, "held.count, from 0 to 1"),
    (Bare, attribute, "held.count, from 0 to 1"),
    (lambda: types.SimpleNamespace(count=0), attribute, "held.count, from 0 to 1"),
    (Counter, lambda m, x: x * m.held.tick(), "held.count, from 0 to 1"),
    (lambda: [1.0, 2.0], lambda m, x: x * m.held.pop(), "held, from [1.0, 2.0] to [1.0]"),
    (lambda: {1.0, 2.0}, lambda m, x: x * m.held.pop(), "held[1.0], from 1.0 to nothing"),
    (lambda: {1: 2}, lambda m, x: x * m.held.pop(1), "held[1], from 2 to nothing"),
    (lambda: collections.deque([1, 2]), rotated, "held[0], from 1 to 2")])
def test_what_modules_hold(make, forward, words, capsys):
    module = Function(forward)
    module.held = make()
    told = told_of(module, capsys)
    assert told.count("[capture]") == 1
    assert f"[capture] forward changes the Python value {words}" in told
    assert "and also reads it. Python" in told


def test_attributes_of_classes(capsys):
    class Net(torch.nn.Module):
        count = 0

        def forward(self, x):
            self.count += 1
            return x * self.count

    class Shared(torch.nn.Module):
        count = 0

        def forward(self, x):
            type(self).count += 1
            return x * self.count

    assert "forward changes the Python value self.count, from 0 to 1" in told_of(Net(), capsys)
    assert "forward changes the Python value count, from 0 to 1" in told_of(Shared(), capsys)


def around(m, x):
    global COUNT
    COUNT += 1
    return x * COUNT


def around_by_a_variable(m, x):
    global COUNT
    count = COUNT
    COUNT = count + 1
    return x * count


def in_state(m, x):
    STATE["n"] += 1
    return x * STATE["n"]


def in_class(m, x):
    Counter.made += 1
    return x * Counter.made


def in_object(m, x):
    COUNTER.count += 1
    return x * COUNTER.count


def in_default(m, x, held=[0]):  # noqa: B006
    held[0] += 1
    return x * held[0]


def in_cell():
    count = 0

    def forward(m, x):
        nonlocal count
        count += 1
        return x * count

    return forward


@pytest.mark.parametrize("forward, what", [
    (around, "COUNT"), (around_by_a_variable, "COUNT"), (in_state, "STATE['n']"),
    (in_class, "Counter.made"), (in_object, "COUNTER.count"), (in_cell(), "count"),
    (lambda m, x: x * COUNTER.tick(), "COUNTER.count"),
    (lambda m, x: x * Counter.make(), "Counter.made"),
    (in_default, "the default of held of in_default[0]")])
def test_what_is_outside(forward, what, capsys):
    told = told_of(Function(forward), capsys)
    assert told.count("[capture]") == 1
    assert f"[capture] forward changes the Python value {what}, from " in told


def test_functions_that_remember(capsys):
    counter = Counter()

    @functools.cache
    def count():
        return counter.tick()

    told = told_of(Function(lambda m, x: x * count()), capsys)
    assert "forward changes the Python value counter.count, from 0 to 1" in told


def test_hooks(capsys):
    calls = [0]

    def hook(module, inputs, output):
        calls[0] += 1
        return output * calls[0]

    module = Function(lambda m, x: x)
    module.register_forward_hook(hook)
    assert "forward changes the Python value calls[0], from 0 to 1" in told_of(module, capsys)


def begins(m, x):
    if not m.held.is_ready:
        m.held.is_ready = True
        return -x
    return x


def begins_outside(m, x):
    global IS_READY
    if not IS_READY:
        IS_READY = True
        return -x
    return x


def next_kind(m, x):
    y = x * (1 if m.held in ("a", Kind.FIRST) else 2)
    m.held = "b" if m.held == "a" else Kind.SECOND
    return y


@pytest.mark.parametrize("held, forward, words", [
    (Counter(), begins, "held.is_ready, from False to True"),
    (None, begins_outside, "IS_READY, from False to True"),
    ("a", next_kind, "self.held, from 'a' to 'b'"),
    (Kind.FIRST, next_kind, "self.held, from <Kind.FIRST: 1> to")])
def test_flags(held, forward, words, capsys):
    module = Function(forward)
    module.held = held
    told = told_of(module, capsys)
    assert told.count("[capture]") == 1
    assert f"[capture] forward changes the Python value {words}" in told


def tensor(m, x):
    m.held = m.held + 1
    return x * m.held


def correction(m, x):
    steps = m.held + 1
    m.held = steps
    return x / (1 - 0.9 ** m.held)


@pytest.mark.parametrize("forward", [tensor, correction])
def test_tensors_that_count(forward, capsys):
    module = Function(forward)
    module.held = torch.zeros(1)
    told = told_of(module, capsys)
    assert told.count("[capture]") == 1
    assert ("changes the Python value self.held, from tensor([0.]) to tensor([1.]), and also "
            "reads it") in told


def test_long_tensors_that_count(capsys):
    module = Function(lambda m, x: count_all(m) * x.sum())
    module.held = torch.zeros(3, 4)
    told = told_of(module, capsys)
    assert "self.held, from torch.float32[3, 4] to torch.float32[3, 4], and also" in told


def count_all(m):
    m.held = m.held + 1
    return m.held


def converted(m, x):
    m.held = m.held.to(x.dtype).detach() * 1
    m.cut = m.cut[:2]
    m.scale = m.scale / m.scale.sum()
    m.half = m.half.half()
    return x * m.held * m.cut * m.half


def test_tensors_that_do_not_count(capsys):
    module = Function(converted)
    module.held, module.cut, module.half = torch.full((2,), 0.1), torch.ones(4), torch.rand(2)
    module.scale = torch.ones(3)  # nothing reads it
    assert told_of(module, capsys) == ""


def one_line(m, x):
    m.held += 1; return x * m.held  # noqa: E702


def one_line_after(m, x):
    x = x * m.held; m.held += 1  # noqa: E702
    return x


def one_line_outside(m, x):
    global COUNT
    COUNT += 1; return x * COUNT  # noqa: E702


def one_line_of_host(m, x):
    m.held += 1; y = x * 2; m.held = 0 if m.held > 9 else m.held + 1  # noqa: E702
    m.held = (m.held +
              1)
    return y


@pytest.mark.parametrize("forward, name", [
    (one_line, "self.held"), (one_line_after, "self.held"),
    (one_line_outside, "COUNT"), (one_line_of_host, None)])
def test_statements_of_one_line(forward, name, capsys):
    module = Function(forward)
    module.held = 1
    told = told_of(module, capsys)
    assert told.count("[capture]") == (name is not None)
    assert name is None or f"forward changes the Python value {name}, from " in told


def for_the_host(m, x):
    global COUNT
    COUNT += 1
    STATE["n"] += 1
    m.held["n"] += 1
    m.counter.count += 1
    m.history.append(x.shape[0])
    return x


def caches(m, x):
    key = x.shape[0]
    if key not in m.history_of:
        m.history_of[key] = key * 2
    m.made.clear()
    for k in range(2):
        m.made.append(k)
    m.index = 0
    for _ in m.made:
        m.index += 1
        x = x * m.index
    if m.longest < key:
        m.longest = key
    return x * m.history_of[key] * m.longest


@pytest.mark.parametrize("forward", [for_the_host, caches])
def test_what_does_not_count(forward, capsys):
    module = Function(forward)
    module.held, module.counter, module.history = {"n": 0}, Counter(), []
    module.history_of, module.made, module.index, module.longest = {}, [], 0, 0
    assert told_of(module, capsys) == ""


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count, self.is_ready = 0, False

    def forward(self, x):
        self.count += 1
        if not self.is_ready:
            self.is_ready = True
        return x * self.count


def test_what_forward_makes_counts_anew(capsys):
    def forward(m, x):
        counter, layer = Counter(), Layer()
        return layer(x) * counter.tick()

    assert told_of(Function(forward), capsys) == ""


def test_functions_of_the_host_count(capsys):
    counter, layer = Counter(), Layer()

    def scaled(x):
        STATE["n"] += 1
        return x * counter.tick() * layer(x) * STATE["n"] * 0 + 1

    module = Function(lambda m, x: m.scaled(x))
    module.scaled, module.counter, module.layer = poptorch.CPU(scaled, "s"), counter, layer
    assert told_of(module, capsys) == "" and counter.count == layer.count == 3
