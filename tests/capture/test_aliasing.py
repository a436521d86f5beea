"""Plain tensors in one memory with others: the program has a copy of each."""

import pytest
import torch

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function, check_inference, check_training
from tests.capture.reference import evaluate

X = torch.ones(4, dtype=torch.float64)


def loss(value):
    return value, poptorch.identity_loss(value.sum(), "sum")


def of(function, attributes, parameters=True):
    """A module with a parameter ``w``, a buffer ``b``, and attributes made from it."""
    module = Function(function, {"w": X * 2} if parameters else {}, {"b": X * 3})
    for name, value in attributes(module).items():
        module.__dict__[name] = value
    return module


def changes_buffer(m, x):
    m.b.add_(1)
    return x[:2] + m.v


def changes_constant(m, x):
    m.v.add_(1)
    return x + m.a


def halves():
    whole = torch.zeros(4, dtype=torch.float64)
    return {"a": whole, "v": whole[:2]}


def of_numpy():
    whole = torch.from_numpy(torch.zeros(4, dtype=torch.float64).numpy())
    return {"a": whole, "v": whole[:2]}


SHARED = {
    "a trained parameter": (True, of(lambda m, x: loss(x * m.w * m.d[0]),
                                     lambda m: {"d": [m.w.detach()]}), r"d\[0\]", "w", "w"),
    "a changed buffer": (False, of(changes_buffer, lambda m: {"v": m.b[:2]}), "v", "b", "b"),
    "a changed constant": (False, of(changes_constant, lambda m: halves()), "a", "v", "v"),
    "arrays of NumPy": (False, of(changes_constant, lambda m: of_numpy()), "a", "v", "v"),
}


@pytest.mark.parametrize("name", SHARED)
def test_one_memory_of_which_a_run_changes_a_part(name):
    training, module, one, other, changed = SHARED[name]
    with pytest.raises(poptorch.Error, match=(
            rf"the plain attribute {one} shares memory with {other}, and a run changes "
            rf"{changed}; the program has a copy of each. Make the view in forward.")) as raised:
        capture(module, (X,), training=training)
    assert "test_aliasing.py:" in raised.value.location


def test_the_same_of_tensors_that_are_no_attributes():
    whole = torch.zeros(4)
    part = whole[1:3]

    def forward(m, x):
        part.add_(1)
        return x + whole

    with pytest.raises(poptorch.Error, match=r"a plain tensor of the sizes \[4\] shares "
                                             "memory with another plain tensor"):
        capture(Function(forward), (X,), training=False)


def test_a_view_with_a_history():
    tied = of(lambda m, x: loss(x @ m.v @ m.v.t() * m.w.sum()),
              lambda m: {"v": m.w.view(4, 1)})
    with pytest.raises(poptorch.Error, match=(
            "the plain attribute v was computed from tensors that require grad before forward was "
            r"called: .*Compute it in forward, or take it as a constant: detach\(\)")) as raised:
        capture(tied, (X,), training=True)
    assert "test_aliasing.py:" in raised.value.location


HARMLESS = {
    "of the parameter itself": lambda m: {"d": m.w, "e": X},
    "a copy": lambda m: {"d": m.w.detach().clone(), "e": X},
    "of a buffer that stays": lambda m: {"d": m.b.view(4), "e": m.b[:2]},
    "constants that stay": lambda m: {"d": (whole := torch.arange(8.0))[2:6], "e": whole[4:]},
    "other elements": lambda m: {"d": (whole := torch.zeros(8).double())[4:], "e": whole[:4]},
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_no_fault(name):
    def forward(m, x):
        return loss(x * m.w * m.d + m.e.sum())

    check_training(of(forward, HARMLESS[name]), X)


def test_a_history_that_gives_no_gradient():
    module = of(lambda m, x: loss(x * m.w * m.d.detach()), lambda m: {"d": (m.w * 2).sum()})
    captured = capture(module, (X,), training=True)
    ours, others = evaluate(captured, [X])
    assert torch.equal(ours[0], X * 32) and torch.equal(others["grad"]["w"], X * 16)


def test_views_that_nothing_changes_in_inference():
    check_inference(of(lambda m, x: x * m.w * m.v + m.b.sum() + m.c,
                       lambda m: {"v": m.w.detach().view(4), "c": m.b[1:2]}), X)


def test_parts_of_one_memory_of_which_one_is_changed():
    def forward(m, x):
        m.e.add_(1)
        return x * m.d + m.e.sum()

    check_inference(of(forward, HARMLESS["other elements"]), X)
