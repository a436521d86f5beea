"""Samples of softmax and its logarithm."""

import torch

from tests.ops.sample import Bad, Sample, integers, randn

INFINITY = float("inf")
SHAPES = [
    ((4, 10), 1),
    ((4, 10), 0),
    ((3, 5, 7), 1),
    ((3, 5, 7), -1),
    ((2, 33, 300), 1),  # several blocks of columns
    ((5, 3000), 1),
    ((600, 20), 1),  # several threads
    ((97,), 0),
    ((), 0),
    ((0, 3), 1),
    ((3, 0), 0),
]


def forward(op, function):
    return [Sample(op, lambda sizes=sizes: [randn(*sizes) * 3], {"dim": dim}, note=str(sizes),
                   reference=lambda x, dim=dim: function(x, dim))
            for sizes, dim in SHAPES]


def backward(op, function):
    aten = getattr(torch.ops.aten, op)

    def operands(sizes, dim):
        # No entry near 1: its gradient would be a difference of nearly equal numbers.
        return [randn(*sizes), function(randn(*sizes) * 0.5, dim)]

    return [Sample(op, lambda sizes=sizes, dim=dim: operands(sizes, dim), {"dim": dim},
                   note=str(sizes),
                   reference=lambda g, y, dim=dim: aten(g, y, dim, y.dtype))
            for sizes, dim in SHAPES]


def hidden(rows, columns):
    """Normal variates with -inf: one row of nothing else, one nearly."""
    x = randn(rows, columns)
    x[1] = -INFINITY
    x[2, 3:] = -INFINITY
    return x


def safe(x, dim):
    return torch.ops.aten._safe_softmax(x, dim)


SAMPLES = [
    *forward("_softmax", torch.softmax),
    *forward("_log_softmax", torch.log_softmax),
    *forward("_safe_softmax", safe),
    *backward("_softmax_backward_data", torch.softmax),
    *backward("_log_softmax_backward_data", torch.log_softmax),
    Sample("_softmax", lambda: [hidden(4, 37)], {"dim": 1}, note="-inf",
           reference=lambda x: torch.softmax(x, 1)),
    Sample("_log_softmax", lambda: [hidden(4, 37)], {"dim": 1}, note="-inf",
           reference=lambda x: torch.log_softmax(x, 1)),
    Sample("_safe_softmax", lambda: [hidden(4, 37)], {"dim": 1}, note="-inf",
           reference=lambda x: safe(x, 1)),
    Sample("_safe_softmax", lambda: [hidden(4, 37).t().contiguous()], {"dim": 0}, note="-inf",
           reference=lambda x: safe(x, 0)),
    Sample("_softmax", lambda: [randn(3, 50) * 1000], {"dim": 1}, note="large",
           reference=lambda x: torch.softmax(x, 1)),
]

BADS = [
    Bad("_softmax", lambda: [randn(3, 4)], {"dim": 2}, words="dimension 2 is out of range"),
    Bad("_softmax", lambda: [integers(0, 9, 3, 4)], {"dim": 1}, words="floating-point"),
    Bad("_softmax_backward_data", lambda: [randn(3, 4), randn(3, 5)], {"dim": 1},
        words="the sizes [3, 4] were expected"),
]
