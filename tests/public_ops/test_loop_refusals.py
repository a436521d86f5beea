"""What loops and branches refuse, and in what words."""

import re

import pytest
import torch
from torch._higher_order_ops import scan, while_loop

import poptorch
from poptorch import cond, for_loop
from tests.helpers import quiet_options
from tests.public_ops.test_loops import Net


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def leaked(m, x):
    made = []
    for_loop(2, lambda v: made.append(v * 2) or v, [x])
    return made[0]


def changes_outside(m, x):
    h = x * 2
    return for_loop(2, lambda v: h.add_(1) + v, [x])[0]


REFUSED = {
    "count": (lambda m, x: for_loop(x, m.a, [x])[0], "int of at least 0, got FakeTensor"),
    "a negative count": (lambda m, x: for_loop(-1, m.a, [x])[0], "count must be an int of"),
    "a bool as count": (lambda m, x: for_loop(True, m.a, [x])[0], "int of at least 0, got True"),
    "no function": (lambda m, x: for_loop(2, None, [x])[0], "body is None. Pass a function"),
    "no list": (lambda m, x: for_loop(2, m.a, x)[0], "Object is not list: Tensor"),
    "a number": (lambda m, x: for_loop(2, m.a, [x, 3])[0],
                 "Object contained in list at index 1 is not torch.tensor: int"),
    "results": (lambda m, x: for_loop(2, lambda v: (v, v), [x])[0],
                r"body takes [torch.float32[3, 4]] and returns [torch.float32[3, 4], "),
    "sizes": (lambda m, x: for_loop(2, lambda v: v[0], [x])[0],
              r"body takes [torch.float32[3, 4]] and returns [torch.float32[4]]. Return a"),
    "a number back": (lambda m, x: for_loop(2, lambda v: 3, [x])[0], "body returns int 3. Return"),
    "condition": (lambda m, x: cond(x, m.a, [x], m.b, [x])[0],
                  "condition is torch.float32[3, 4], a bool tensor of one element is needed"),
    "a condition that is known": (lambda m, x: cond(True, m.a, [x], m.b, [x])[0],
                                  "condition is True, a bool tensor"),
    "branches": (lambda m, x: cond(x.sum() > 0, lambda v: v, [x], lambda v: v.sum(), [x])[0],
                 "the branches return different tensors: torch.float32[3, 4] vs torch.float32[]"),
    "types of a scan": (lambda m, x: scan(lambda c, r: (c + r, r * 1), x[0].half(), x)[1],
                        "[scan] the body takes [torch.float16[4]] from the round before and"),
    "a leak": (leaked, "that the body of a loop or a branch made is used outside of it. Return"),
    "outside in place": (changes_outside, "body changes a tensor from outside of it in place."),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    function, words = REFUSED[name]
    with pytest.raises(poptorch.Error, match=re.escape(words)) as found:
        poptorch.inferenceModel(Net(function), quiet_options())(torch.randn(3, 4))
    assert "/tests/public_ops/test_loop" in str(found.value)


def test_lists_are_checked_with_classes_of_pythons():
    for function in (lambda: for_loop(2, torch.sin, torch.ones(2)),
                     lambda: cond(torch.tensor(True), torch.sin, [torch.ones(2)], torch.sin, [3])):
        with pytest.raises(ValueError, match="Object") as found:
            function()
        assert isinstance(found.value, poptorch.Error)


def test_refusals_in_training():
    def own_function(m, x):
        h = m.a(x)
        return for_loop(2, lambda v: v + Doubled.apply(h), [x])[0]

    def unknown_rounds(m, x):
        return while_loop(lambda v: v.sum() > 0, lambda v: (v - 1,), (m.a(x),))[0]

    def second_order(m, x):
        h = m.a(x)
        y = for_loop(2, lambda v: torch.tanh(m.b(v)), [h])[0]
        return torch.autograd.grad(y.sum(), [h], create_graph=True)[0] + y

    def changes_what_has_a_gradient(m, x):
        h = m.a(x)
        return for_loop(2, lambda v: h.add_(1) + v, [x])[0]

    def changes_a_view_of_it(m, x):
        h = m.a(x)
        return cond(x.sum() > 0, lambda: h[0].mul_(2), [], lambda: h[0], [])[0]

    outside = r"body changes a tensor from outside of it in place\. Pass it as an input"
    for function, words in ((changes_what_has_a_gradient, rf"\[for_loop\] the {outside}"),
                            (changes_a_view_of_it, rf"\[cond\] the {outside}"),
                            (second_order, r"\[for_loop\] there are no gradients of gradients th"),
                            (own_function, r"\[for_loop\] the body hands a tensor from outside of"),
                            (unknown_rounds, r"\[while_loop\] there are no gradients through a")):
        net = Net(function)
        with pytest.raises(poptorch.Error, match=rf"{words}(?s:.*)test_loop_refusals\.py:"):
            poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(
                net.parameters(), lr=0.1))(torch.randn(3, 4))
