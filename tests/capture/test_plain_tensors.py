"""Tensors that are not arguments, parameters or buffers, and that ``forward`` changes in place: a
warning names each, each call starts from the values at capture, and the host has those of one
call."""

import random
import types

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from tests.fuzz.judge import budget
from tests.helpers import quiet_options

HOLDER = types.SimpleNamespace()

# Of the input x of sizes [2, 3, 4], and plain tensors a and b of sizes [3].
CHANGES = {
    "add_": lambda x, a, b: a.add_(b),
    "mul_": lambda x, a, b: a.mul_(2).sub_(x.mean((0, 2))),
    "copy_": lambda x, a, b: a.copy_(x[0, :, 0]),
    "item": lambda x, a, b: a.__setitem__(1, 7.0),
    "view": lambda x, a, b: a[1:].add_(x[0, 0, 0]),
    "detached": lambda x, a, b: a.detach().view(3, 1).exp_(),
    "data": lambda x, a, b: a.data.neg_(),
    "out": lambda x, a, b: torch.add(b, x[0, :, 1], out=a),
    "masked": lambda x, a, b: a.masked_fill_(b > 0, 3.0),
    "index": lambda x, a, b: a.index_add_(0, torch.tensor([0, 0]), x[0, 0, :2]),
    "lerp_": lambda x, a, b: a.lerp_(b, 0.5),
    "zero_": lambda x, a, b: b.zero_(),
    "embedding": lambda x, a, b: F.embedding(torch.tensor([0]), a.view(3, 1), max_norm=0.1),
    "batch_norm": lambda x, a, b: F.batch_norm(x, a, b, training=True),
    "batch_norm without momentum": lambda x, a, b: F.batch_norm(x, a, b, None, None, True, 1.0),
    "torch.batch_norm": lambda x, a, b: torch.batch_norm(
        x, None, None, a, b, True, 0.1, 1e-5, False),
    "native_batch_norm": lambda x, a, b: torch.native_batch_norm(
        x, None, None, a, b, True, 0.1, 1e-5)[0],
    "batch_norm_impl_index": lambda x, a, b: torch._batch_norm_impl_index(
        x, None, None, a, b, True, 0.1, 1e-5, False)[0],
    "instance_norm": lambda x, a, b: F.instance_norm(x, a, b, use_input_stats=True),
    "torch.instance_norm": lambda x, a, b: torch.instance_norm(
        x, None, None, a, b, True, 0.1, 1e-5, False),
    "instance_norm of a module": lambda x, a, b: _module_of(torch.nn.InstanceNorm1d, a, b)(x),
    "batch_norm of a module": lambda x, a, b: _module_of(torch.nn.BatchNorm1d, a, b)(x),
}


def _module_of(kind, mean, variance):
    layer = kind(3, affine=False, track_running_stats=True)
    layer.running_mean, layer.running_var, layer.num_batches_tracked = mean, variance, None
    return layer


class Attribute(torch.nn.Module):
    def __init__(self, change, a, b):
        super().__init__()
        self.change, self.held = change, [a, {"b": b}]

    def forward(self, x):
        return result(self.change, x, self.held[0], self.held[1]["b"])


def result(change, x, a, b):
    found = change(x, a, b)
    beside = found.sum() if isinstance(found, torch.Tensor) else 0
    return a + b * 2 + beside


def by_closure(change, a, b):
    return lambda x: result(change, x, a, b)


def by_default(change, a, b):
    def forward(x, held=None):
        return result(change, x, *forward.held)

    forward.held = a, b
    return forward


def by_global(change, a, b):
    HOLDER.tensors = a, b
    return lambda x: result(change, x, *HOLDER.tensors)


def by_object(change, a, b):
    class Held:
        def __init__(self):
            self.tensors = {"a": a, "b": b}

        def of(self, x):
            return result(change, x, self.tensors["a"], self.tensors["b"])

    return Held().of


def module_of(function):
    module = torch.nn.Module()
    module.forward = function
    return module


REACHED = {"closure": by_closure, "function attribute": by_default, "global": by_global,
           "object": by_object, "attribute": Attribute}


def changed(before, after) -> int:
    return sum(not torch.equal(x, y) for x, y in zip(before, after))


@pytest.mark.parametrize("name", CHANGES)
@given(seed=st.integers(0, 2**32))
@budget(1)
def test_changes_are_told_of(name, seed, caplog):
    reach = REACHED[random.Random(seed).choice([*REACHED])]
    x, start = torch.rand(2, 3, 4) + 1, [torch.rand(3) + 0.5, torch.rand(3) + 0.5]
    theirs, ours = ([t.clone() for t in start] for _ in range(2))
    expected = result(CHANGES[name], x, *theirs)
    made = reach(CHANGES[name], *ours)
    module = made if isinstance(made, torch.nn.Module) else module_of(made)
    model = poptorch.inferenceModel(module, quiet_options())
    caplog.clear()
    model.compile(x)
    told = " ".join(caplog.text.split())
    assert told.count("[capture] forward changes ") == changed(start, theirs), (seed, told)
    assert f"at {__file__}:" in told and not changed(start, ours)
    for _ in range(2):
        torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(ours, theirs)
    model.destroy()


def test_each_line_is_told_of(capsys):
    for change in (lambda t: t.add_(1), lambda t: t.mul_(2)):
        held = torch.ones(3)
        poptorch.inferenceModel(module_of(lambda x: x + change(held)), quiet_options()).compile(
            torch.ones(3))
        assert "[capture] forward changes a tensor of the sizes [3] in" in capsys.readouterr().err


class Counts(torch.nn.Module):
    """Has a list of its class that ``forward`` appends to."""

    seen: list = []

    def forward(self, x):
        self.seen.append(len(self.seen))
        return x + 1


def test_a_list_of_a_class_that_forward_appends_to(capsys):
    model = poptorch.inferenceModel(Counts(), quiet_options())
    for _ in range(3):
        model(torch.ones(2))
    model.destroy()
    told = " ".join(capsys.readouterr().err.split())
    assert "seen" in told and "[capture]" in told, told
