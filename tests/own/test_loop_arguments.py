"""The arguments of a body require grad where those in eager do."""

import pytest
import torch
from torch._higher_order_ops import map as map_rows

import poptorch
from poptorch import cond, for_loop
from tests.own.scans import scan_by_python
from tests.own.test_loops import check_training


def told(v):
    """Numbers that say whether a tensor requires grad."""
    return torch.full_like(v, 2.0 if v.requires_grad else 3.0)


def changed_after_a_function(m):
    """Autograd refuses it where the argument requires grad."""
    def body(v):
        torch.relu_(v)
        v[0].add_(m.a.bias)
        return v * 2

    return body


def becomes_one_that_requires_grad(m):
    def body(v):
        v.mul_(m.a.weight[:3])
        return v * told(v)

    return body


def mapped(m, x):
    if poptorch.isRunningOnIpu():
        return map_rows(told, x)
    return torch.stack([told(row) for row in x])


FUNCTIONS = {
    "cond": lambda m, x: cond(x.sum() > 0, told, [x], told, [m.a(x)])[0],
    "cond, a change": lambda m, x: cond(x.sum() > 0, changed_after_a_function(m), [x],
                                        changed_after_a_function(m), [x * 3])[0],
    "cond, a parameter": lambda m, x: cond(
        x.sum() > 0, becomes_one_that_requires_grad(m), [x], told, [x])[0],
    "one round": lambda m, x: sum(for_loop(1, lambda a, b: (told(a), told(b) * 3), [x, m.a(x)])),
    "one round, a change": lambda m, x: for_loop(1, changed_after_a_function(m), [x])[0],
    "one round, a parameter": lambda m, x: for_loop(1, becomes_one_that_requires_grad(m), [x])[0],
    "rows of scan": lambda m, x: scan_by_python(lambda c, row: (c * 0.5, told(row)), m.a.bias * 1,
                                                x)[1],
    "rows of map": mapped,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_training_as_eager(name):
    check_training(lambda m, x: FUNCTIONS[name](m, x) + m.a(x) + m.b(x))
