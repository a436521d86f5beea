"""PyTorch's operations on functions, which lines of random programs call as ``higher.<name>``.

Where poptorch compiles they are PyTorch's own. In eager, where these run torch.compile on what is
in them, they are loops of Python.
"""

import inspect

import torch
from torch import _higher_order_ops

import poptorch


def scan(function, carry, rows, reverse=False):
    """``(carry, rows)``: ``carry, row = function(carry, row)`` for one row after the other."""
    if poptorch.isRunningOnIpu():
        return _higher_order_ops.scan(function, carry, rows, reverse=reverse)
    made, operands = [], [carry, rows, *_from_outside(function)]
    for row in rows.flip(0) if reverse else rows:
        following, row = function(carry, row)
        carry = _carried(carry, following)
        made.append(row)
    made = torch.stack(made[::-1] if reverse else made)
    # The rows are written to a new tensor, which is contiguous; those of map are stacked.
    results = carry, torch.empty(made.shape, dtype=made.dtype).copy_(made)
    return tuple(_Tied.apply(x, *operands) for x in results)


class _Tied(torch.autograd.Function):
    """A copy of a result, whose operands have gradients, zeros where it does not depend on them.

    PyTorch refuses results that share memory with what goes in.
    """

    @staticmethod
    def forward(ctx, result, *operands):
        ctx.operands = operands
        return result.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, *(torch.zeros_like(x) for x in ctx.operands)


def map(function, rows):
    """``function`` of each row."""
    if poptorch.isRunningOnIpu():
        return _higher_order_ops.map(function, rows)
    made = torch.stack([function(row) for row in rows])
    return _Tied.apply(made, rows, *_from_outside(function))


def _from_outside(function) -> list[torch.Tensor]:
    """The tensors that a function reads in addition to its arguments."""
    found = inspect.getclosurevars(function).nonlocals.values()
    return [x for x in found if isinstance(x, torch.Tensor)]


def while_loop(rounds, function, x):
    """``function`` of ``x``, as often as a tensor says; without a gradient."""
    with torch.no_grad():
        rounds, x = rounds.reshape(()) * 1, x * 1
        if poptorch.isRunningOnIpu():
            return _higher_order_ops.while_loop(
                lambda n, v: n > 0, lambda n, v: (n - 1, function(v)), (rounds, x))[1]
        for _ in range(rounds.item()):
            x = _carried(x, function(x))
        return x


def _carried(x, following):
    """``following``, as PyTorch wants what takes the place of ``x`` to be: of its type, and laid
    out in memory as it is."""
    if following.dtype is not x.dtype:
        raise TypeError(f"a loop carries {x.dtype} and goes on with {following.dtype}")
    return following if following.stride() == x.stride() else torch.empty_like(x).copy_(following)
