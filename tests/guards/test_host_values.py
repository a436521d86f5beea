"""Tensors that forward keeps in attributes and that are the same in each call have their values."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function
from tests.helpers import quiet_options


class Rotary(nn.Module):
    """Keeps its tables, for the length that it met last."""

    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", torch.tensor([1.0, 0.5]))
        self.length = self.tables = None
        self.scale, self.is_ready = torch.ones(4), False

    def forward(self, x):
        if self.length != x.shape[1]:
            self.length = x.shape[1]
            angles = torch.outer(torch.arange(self.length).to(self.frequencies), self.frequencies)
            self.tables = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        if not self.is_ready:
            table = torch.zeros(4)
            table[1:] = self.frequencies.sum()
            table[0].add_(2)
            self.scale, self.is_ready = table, True
        cos, sin = self.tables
        return (x * cos + x.flip(-1) * sin) * self.scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.rotary = nn.Linear(4, 4), Rotary()

    def forward(self, x):
        y = self.rotary(self.layer(x))
        return (y, poptorch.identity_loss(y.pow(2).mean(), "none")) if self.training else y


def test_the_next_compilation_meets_what_eager_left():
    module = Net()
    eager = copy.deepcopy(module)
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    model = poptorch.trainingModel(module, quiet_options(),
                                   torch.optim.SGD(module.parameters(), lr=0.1))
    x = torch.randn(2, 3, 4)
    for _ in range(2):
        optimizer.zero_grad()
        expected = eager(x)
        expected[1].backward()
        optimizer.step()
        torch.testing.assert_close(model(x), expected)
    for ours, theirs in zip((*module.rotary.tables, module.rotary.scale),
                            (*eager.rotary.tables, eager.rotary.scale)):
        torch.testing.assert_close(ours, theirs)
    assert model.nan_report(x) is None
    model.destroy()
    module.eval(), eager.eval()
    for length in (3, 5):
        x = torch.randn(2, length, 4)
        torch.testing.assert_close(poptorch.inferenceModel(module, quiet_options())(x), eager(x))
        torch.testing.assert_close(module(x), eager(x))


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor([1.0, 0.5]))
        self.table = None

    def forward(self, x):
        if self.table is None or len(self.table) != len(x):
            self.table = torch.arange(len(x)).outer(self.scale)
        return x + self.table


@pytest.mark.parametrize("make", [Table, lambda: Rotary()])
def test_programs_of_several_lengths_do_not_depend_on_the_last_one(make):
    module = make()
    shapes = [(3, 2), (3, 2), (5, 2)] if make is Table else [(1, 3, 4), (1, 3, 4), (1, 5, 4)]
    models = [(poptorch.inferenceModel(module, quiet_options()), torch.randn(shape))
              for shape in shapes]
    for model, x in [*models, *reversed(models)]:
        torch.testing.assert_close(model(x), make()(x))
    for _, x in models:
        torch.testing.assert_close(module(x), make()(x))
    for model, x in models:
        torch.testing.assert_close(model(x), make()(x))


def in_order(m, x):
    table = torch.arange(4.0)
    m.before, m.view = table.clone(), table[1:]
    table.mul_(2)
    m.after, m.count = table + m.fixed, 3
    return x + m.after


def test_changes_in_place_are_made_in_their_order():
    module = Function(in_order, buffers={"fixed": torch.ones(4)})
    eager = copy.deepcopy(module)
    capture(module, (torch.ones(4),), training=False)
    eager(torch.ones(4))
    for name in ("before", "view", "after", "count"):
        assert torch.equal(torch.as_tensor(getattr(module, name)),
                           torch.as_tensor(getattr(eager, name))), name


def of_the_argument(m, x):
    m.kept = x * 2
    return x


def random(m, x):
    m.kept = torch.rand(2)
    return x


def of_a_changed_buffer(m, x):
    m.kept = m.b * 2
    m.b.add_(1)
    return x


def written_by_the_argument(m, x):
    m.kept = torch.zeros(2)
    m.kept[0] = x[0]
    return x


def with_the_argument(m, x):
    m.kept = torch.zeros(2) + 1, x * 2
    return x


@pytest.mark.parametrize("forward", [of_the_argument, random, of_a_changed_buffer,
                                     written_by_the_argument, with_the_argument])
def test_what_differs_from_call_to_call_is_put_back(forward, capsys):
    module = Function(forward, buffers={"b": torch.ones(2)})
    capture(module, (torch.ones(2),), training=False)
    assert not hasattr(module, "kept")
    assert "forward keeps a tensor in kept, but" in capsys.readouterr().err


def of_a_parameter(m, x):
    m.kept = m.w.detach() * 2
    return x, poptorch.identity_loss((x * m.w).sum(), "none")


@pytest.mark.parametrize("training", [True, False])
def test_what_is_trained_differs_from_call_to_call(training, capsys):
    module = Function(of_a_parameter, {"w": torch.ones(2)})
    capture(module, (torch.ones(2),), training=training)
    assert hasattr(module, "kept") is not training
    if not training:
        assert torch.equal(module.kept, torch.full((2,), 2.0))


def begins(m, x):
    if not m.is_ready:
        with torch.no_grad():
            m.w.copy_(x.mean(0))
        m.is_ready = True
    return x * m.w


def test_a_flag_that_forward_sets_is_warned_of(capsys):
    module = nn.Sequential(Function(begins, {"w": torch.ones(2)}))
    module[0].is_ready = False
    capture(module, (torch.ones(3, 2),), training=False)
    told = " ".join(capsys.readouterr().err.split())
    assert ("forward changes the Python value self.0.is_ready, from False to True, and also reads "
            "it. Python code runs only while forward is traced, so every call sees what the first "
            "one saw. If the value is the same from the second call on, call the module once on "
            "the CPU before it is wrapped; else make it a buffer") in told
    assert f'at {__file__}:{begins.__code__.co_firstlineno + 4}, module "0"' in told
    capture(module, (torch.ones(3, 2),), training=False)
    assert capsys.readouterr().err == ""


def counts(m, x):
    m.count += 1
    return x * m.count


def anneals(m, x):
    y = x / m.count
    m.count = max(0.5, m.count * 0.9)
    return y


@pytest.mark.parametrize("forward, before, words, line", [
    (counts, 0, "self.0.count, from 0 to 1, and also reads it. Python code runs only", 1),
    (anneals, 2.0, "self.0.count, from 2.0 to 1.8, and also reads it", 2)])
def test_a_counter_that_forward_computes_with_is_warned_of(forward, before, words, line, capsys):
    module = nn.Sequential(Function(forward))
    module[0].count = before
    capture(module, (torch.ones(3, 2),), training=False)
    told = " ".join(capsys.readouterr().err.split())
    assert f"[WARNING] [capture] forward changes the Python value {words}" in told
    assert f'at {__file__}:{forward.__code__.co_firstlineno + line}, module "0"' in told


def test_what_is_no_counter_of_the_program_is_not_warned_of(capsys):
    def forward(m, x):
        m.count += 1
        if m.length < x.shape[0]:
            m.length = x.shape[0]
        m.seen = m.length
        return x * m.length

    module = Function(forward)
    module.count, module.length = 0, 1
    capture(module, (torch.ones(3, 2),), training=False)
    assert (module.count, module.length) == (1, 3) and capsys.readouterr().err == ""
