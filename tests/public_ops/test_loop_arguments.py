"""The arguments and the results of a body require grad where those in eager do."""

import pytest
import torch
from torch._higher_order_ops import map as map_rows

import poptorch
from poptorch import cond, for_loop
from tests.helpers import quiet_options
from tests.public_ops.scans import scan_by_python
from tests.public_ops.test_loops import check_training


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


def without_gradient(function):
    """It returns a view that says that it requires grad, and has no gradient."""
    return torch.no_grad()(function)


VIEWS = {
    "for_loop": lambda m, x: for_loop(
        2, without_gradient(lambda v, w: [v.t().t(), w * 2]), [m.a(x), m.b(x)])[0],
    "one of two results": lambda m, x: for_loop(
        2, lambda v, w: [without_gradient(lambda: v[:])(), torch.tanh(m.b(w)) * v],
        [m.a(x), m.b(x)])[1],
    "cond": lambda m, x: cond(x.sum() > 0, without_gradient(lambda v: v.view(3, 4)), [m.a(x)],
                              lambda v: v * 2, [m.a(x)])[0],
    "both branches": lambda m, x: cond(x.sum() > 0, without_gradient(lambda v: v.view(3, 4)),
                                       [m.a(x)], without_gradient(lambda v: v[:]), [m.b(x)])[0],
    "function of the host": lambda m, x: poptorch.CPU(
        without_gradient(lambda v: v.view(3, 4)), "view")(m.a(x)),
    "detached on the host": lambda m, x: told(poptorch.CPU(
        lambda v: v.detach() * 2, "double")(m.a(x))),
}


@pytest.mark.parametrize("name", VIEWS)
def test_results_that_are_views_without_gradients(name):
    check_training(lambda m, x: VIEWS[name](m, x) + m.a(x) + m.b(x))


CONSTANT = {
    "for_loop": lambda m, x: for_loop(
        3, lambda v, w: [w.detach() * 2, torch.tanh(w)], [m.a(x), m.b(x)])[0],
    "for_loop, nothing that requires grad": lambda m, x: for_loop(
        2, lambda v, w: [v * 2, torch.tanh(m.b(w))], [x, m.a(x)])[0],
    "for_loop, the argument of the round before": lambda m, x: for_loop(
        2, lambda v, w: [w, x], [m.a(x), m.b(x)])[0],
    "cond": lambda m, x: cond(x.sum() > 0, lambda v: (v.detach() * 2, v), [m.a(x)],
                              lambda v: (v.detach(), v * 2), [m.a(x)])[0],
}


@pytest.mark.parametrize("name", CONSTANT)
def test_results_that_depend_on_nothing_that_requires_grad(name):
    """Beside others that do they say so, too."""
    check_training(lambda m, x: told(CONSTANT[name](m, x)) + m.a(x) + m.b(x))


# Of a scan, which has gradients of zeros where autograd asks it for any, the loss takes nothing.
UNTRAINED = {
    "detached": lambda rows, x: for_loop(1, lambda v, w: [w.detach(), v], [rows, x])[0],
    "another result": lambda rows, x: for_loop(3, lambda v, w: [-v, torch.tanh(w)], [rows, x])[1],
    "another result of a branch": lambda rows, x: cond(
        x.sum() > 0, lambda v, w: (v, w * 2), [rows, x], lambda v, w: (v * 2, w), [rows, x])[1],
}


@pytest.mark.parametrize("name", UNTRAINED)
def test_no_gradient_where_no_result_that_depends_on_it_is_trained(name):
    class Scanned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used = torch.nn.Parameter(torch.rand(3))
            self.unused = torch.nn.Parameter(torch.rand(1, 3))

        def forward(self, x):
            rows = scan_by_python(lambda c, row: (c * row, torch.sin(row)), x, self.unused)[1]
            found = UNTRAINED[name](rows, x[None] * self.used)
            return poptorch.identity_loss((found * self.used).sum(), "none")

    net = Scanned()
    before = net.unused.detach().clone()
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.5, weight_decay=0.5)
    poptorch.trainingModel(net, quiet_options(), optimizer)(torch.rand(3))
    assert torch.equal(net.unused, before)


def limited(x):
    """Its gradient is limited, by a hook: what several results give is added up before."""
    y = x * 1
    if y.requires_grad:
        y.register_hook(lambda g: g.clamp(-0.5, 0.5))
    return y


class Limited(torch.autograd.Function):
    """Likewise, by a function of the user's."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-0.5, 0.5)


@pytest.mark.parametrize("limit", [limited, Limited.apply])
@pytest.mark.parametrize("name", ["for_loop", "within another", "cond"])
def test_gradients_of_several_results_meet_where_code_of_the_user_sees_them(limit, name):
    def body(v, w):
        y = limit(v)
        return [y * 3, y * w]

    def outer(v, w):
        return for_loop(1, body, [v, w])

    def function(m, x):
        inputs = [m.a(x), m.b(x)]
        if name == "cond":
            return sum(cond(x.sum() > 0, body, inputs, body, inputs))
        return sum(for_loop(1, body if name == "for_loop" else outer, inputs))

    check_training(function)
