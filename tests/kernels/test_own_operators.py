"""Operators of the user's own libraries within a model: called as eager calls them."""

import gc

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options

SIZE = 1 << 17  # of a weight: its pages are shared with the device
kept = []
calls = []


@torch.library.custom_op("poptorch_test_own::checked", mutates_args=())
def checked(x: torch.Tensor) -> torch.Tensor:
    """Refuses zeros, as an operator may that divides."""
    calls.append(x.sum().item())
    if not x.any():
        raise ZeroDivisionError("zeros were given")
    return x * 2


@torch.library.custom_op("poptorch_test_own::keeping", mutates_args=())
def keeping(x: torch.Tensor) -> torch.Tensor:
    """Keeps its arguments."""
    kept.append(x[1:])
    return x + 1


@torch.library.custom_op("poptorch_test_own::drawing", mutates_args=())
def drawing(x: torch.Tensor) -> torch.Tensor:
    """Gives something else at each call."""
    calls.append(1)
    return x + len(calls)


for operator in (checked, keeping, drawing):
    operator.register_fake(torch.empty_like)


@pytest.fixture(autouse=True)
def fresh():
    kept.clear()
    calls.clear()


class Model(nn.Module):
    """Applies a function to its input and its weight."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.arange(1.0, SIZE + 1))

    def forward(self, x):
        return self.function(x, self.weight)


def compiled(function):
    return poptorch.inferenceModel(Model(function), quiet_options())


def test_it_is_called_once_a_run_and_never_on_zeros():
    model = compiled(lambda x, w: checked(x))
    for factor in (1.0, 2.0, -3.0):
        assert torch.equal(model(torch.full((3,), factor)), torch.full((3,), 2 * factor))
    assert calls == [3.0, 6.0, -9.0]


def test_its_exceptions_pass_unchanged():
    model = compiled(lambda x, w: checked(x))
    ones = torch.ones(3)
    for _ in range(2):
        assert torch.equal(model(ones), 2 * ones)
        with pytest.raises(ZeroDivisionError, match="zeros were given"):
            model(0 * ones)


def test_what_it_keeps_outlives_the_program():
    model = compiled(lambda x, w: (keeping(x * 2), keeping(w), keeping(w * 2)))
    for factor in range(3):
        model(torch.full((3,), float(factor)))
    weight = model.weight.detach().clone()
    model.destroy()
    del model
    gc.collect()
    assert len(kept) == 9
    for factor in range(3):
        small, shared, made = kept[3 * factor:3 * factor + 3]
        assert torch.equal(small, torch.full((2,), 2.0 * factor))
        assert torch.equal(shared, weight[1:]) and torch.equal(made, 2 * weight[1:])
        shared.add_(1)  # it is the operator's own
    assert torch.equal(kept[1], weight[1:] + 1)


def test_equal_calls_are_not_merged():
    model = compiled(lambda x, w: (drawing(x), drawing(x)))
    assert [y.item() for y in model(torch.zeros(()))] == [1, 2]
    assert [y.item() for y in model(torch.zeros(()))] == [3, 4]
