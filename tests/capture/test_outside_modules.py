"""Modules that a program holds in lists, closures, objects and globals run as they are."""

import copy
import functools
import re
import threading

import pytest
import torch
from torch import nn

import poptorch
from tests.capture.common import Function
from tests.helpers import quiet_options

X = torch.tensor([1.0, 2.0])


class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.drop, self.config = 2.0, nn.Dropout(0.5), {"shift": 1.0}
        self.w = nn.Parameter(torch.tensor([2.0, 3.0]))
        self.register_buffer("n", torch.ones(2))

    def forward(self, x):
        return self.drop(x * self.scale + self.config["shift"]) * self.w + self.n


def in_list(held):
    module = Function(lambda m, x: m.held[0](x))
    module.held = [held]
    return module


def in_closure(held):
    return Function(lambda m, x: held(x))


def in_partial(held):
    return Function(functools.partial(lambda held, m, x: held(x), held))


HOLDERS = pytest.mark.parametrize("hold", [in_list, in_closure, in_partial])


def rescaled(held):
    held.scale = 5.0


def trained(held):
    held.train()


def layer_trained(held):
    held.drop.train()


def reconfigured(held):
    held.config["shift"] = 2.0


def other_weight(held):
    held.w = nn.Parameter(torch.ones(2))


def other_buffer(held):
    held.n = torch.zeros(2)


def other_layer(held):
    held.drop = nn.Tanh()


def with_a_hook(held):
    held.register_forward_hook(lambda m, args, out: out + 1)


CHANGES = {
    rescaled: "Held.scale changed from 2.0 to 5.0",
    trained: "training changed from False to True",
    layer_trained: "Dropout.training changed from False to True",
    reconfigured: r"Held.config\['shift'\] changed from 1.0", other_weight: r"Held._parameters",
    other_buffer: "Held._buffers", other_layer: "Held._modules",
    with_a_hook: "Held._forward_hooks"}


@HOLDERS
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_later_change_compiles_again(hold, change):
    held = Held().eval()
    module = hold(held).eval()
    model = poptorch.inferenceModel(module, quiet_options())
    for _ in range(2):
        assert torch.equal(model(X), module(X))
    change(held)
    model(X)
    assert re.search(CHANGES[change], model.programs()[1].reason), model.programs()[1].reason
    if not held.drop.training or isinstance(held.drop, nn.Tanh):
        torch.testing.assert_close(model(X), module(X).detach())


def sets_a_buffer(held):
    held.n = held.n + 1


def sets_a_weight(held):
    held.w = nn.Parameter(held.w * 2)


def adds_a_weight(held):
    held.more = nn.Parameter(held.w * 2)


def registers_a_buffer(held):
    held.register_buffer("more", held.w * 2)


def deletes_a_buffer(held):
    del held.n


def sets_a_layer(held):
    held.drop = nn.Linear(2, 2)


@HOLDERS
@pytest.mark.parametrize("change, name, table", [
    (sets_a_buffer, "n", "_buffers"), (sets_a_weight, "w", "_parameters"),
    (adds_a_weight, "more", "_parameters"), (registers_a_buffer, "more", "_buffers"),
    (deletes_a_buffer, "n", "_buffers"), (sets_a_layer, "drop", "_modules")])
def test_tables_that_forward_changes(hold, change, name, table):
    held = Held().eval()
    held.register_forward_hook(lambda m, args, out: change(m))
    before = dict(held.named_parameters()) | dict(held.named_buffers())
    with pytest.raises(poptorch.Error, match=(
            f"forward sets or deletes {name} of a Held that is no part of the model, which is in "
            f"its table {table}: a program keeps the state of parts only. Make the Held a part of "
            r"the model, as an attribute or in a ModuleList, and change tensors by `copy_\(value")):
        poptorch.inferenceModel(hold(held), quiet_options())(X)
    after = dict(held.named_parameters()) | dict(held.named_buffers())
    assert list(after) == list(before) and all(after[key] is before[key] for key in before)
    assert type(held.drop) is nn.Dropout


@HOLDERS
def test_a_tensor_that_forward_keeps(hold, capsys):
    held = Held().eval()
    held.best = None

    def keep(m, args, out):
        m.best, m.last, m.count = out, [out], getattr(m, "count", 0) + 1

    held.register_forward_hook(keep)
    module = hold(held).eval()
    expected = module(X)
    held.best = None
    del held.last, held.count
    assert torch.equal(poptorch.inferenceModel(module, quiet_options())(X), expected)
    assert held.best is None and not hasattr(held, "last")
    assert "forward keeps a tensor in Held.best" in capsys.readouterr().err


class Late(nn.Module):
    def __init__(self, size):
        self.size = size
        super().__init__()
        self.w, self.out = nn.Parameter(torch.ones(size)), None

    def forward(self, x):
        self.out = x * self.w
        return self.out


def test_modules_that_forward_makes_and_copies(capsys):
    held = Held().eval()

    def forward(m, x):
        late, copied = Late(2), copy.copy(held)
        copied._buffers = {"n": copied.n + 1}
        copied.n = copied.n + 1
        return late(x) + late.out + copied(x)

    module = Function(forward).eval()
    model = poptorch.inferenceModel(module, quiet_options())
    assert torch.equal(model(X), module(X)) and torch.equal(model(X), module(X))
    assert "forward keeps" not in capsys.readouterr().err


def test_another_thread_makes_and_changes_modules_meanwhile():
    reached, go_on, held = threading.Event(), threading.Event(), Held()

    def forward(m, x):
        if poptorch.isRunningOnIpu():
            reached.set()
            assert go_on.wait(60)
        return x + 1

    model = poptorch.inferenceModel(Function(forward), quiet_options())
    compiling = threading.Thread(target=model.compile, args=(X,))
    compiling.start()
    assert reached.wait(60)
    try:
        made = Late(2)
        held.n, made.w = torch.zeros(2), nn.Parameter(torch.zeros(2))
        held.eval()(X)
    finally:
        go_on.set()
        compiling.join()
    assert torch.equal(model(X), X + 1)
    assert not held.n.any() and not made.w.any() and not held.training
