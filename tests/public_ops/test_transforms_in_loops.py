"""Functions that torch.func transforms, inside the bodies of loops and branches."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap

import poptorch
from poptorch import cond, for_loop
from tests.helpers import quiet_options
from tests.public_ops.test_loops import Net, check_training


def of_a_weight_as_input(m, x):
    def body(v, w):
        return v - 0.1 * grad(lambda u: F.linear(v, u).tanh().sum())(w).sum(0), w

    return for_loop(2, body, [x, m.a.weight])[0]


def in_a_loop_in_a_loop(m, x):
    def outer(v):
        return for_loop(2, lambda q: q - 0.1 * grad(lambda u: (m.a(u) * v).tanh().sum())(q),
                        [m.b(v)])

    return for_loop(2, outer, [x])[0]


def in_a_branch(m, x):
    return cond(x.sum() > 0, lambda v: grad(lambda u: (m.a(u).tanh() * m.b(v)).sum())(v), [x],
                lambda v: m.b(v), [x])[0]


def a_round(function):
    return lambda m, x: for_loop(2, lambda v: v - 0.1 * function(m, v), [m.b(x)])[0]


PROGRAMS = {
    "grad": a_round(lambda m, v: grad(lambda u: m.a(u).tanh().sum())(v)),
    "vjp": a_round(lambda m, v: vjp(lambda u: m.a(u).tanh(), v)[1](v * m.b.bias)[0]),
    "jvp": a_round(lambda m, v: jvp(lambda u: m.a(u).tanh(), (v,), (v * m.b.bias,))[1]),
    "vmap": a_round(lambda m, v: vmap(lambda u: m.a(u).tanh() * m.b.bias)(v)),
    "grads of rows": a_round(lambda m, v: vmap(grad(lambda u: m.a(u).tanh().sum()))(v)),
    "hessian": a_round(lambda m, v: hessian(lambda u: m.a(u).tanh().sum())(v[0]).sum(0)),
    "jacobian": a_round(lambda m, v: jacrev(lambda u: m.a(u).tanh())(v[0]).sum(0)),
    **{function.__name__: function for function in (
        of_a_weight_as_input, in_a_loop_in_a_loop, in_a_branch)},
}


# Torch's own forward-mode differentiation uses torch.jit.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_training_as_eager(name):
    check_training(PROGRAMS[name])


REFUSED = {
    "of a weight": (
        a_round(lambda m, v: grad(lambda w: F.linear(v, w).tanh().sum())(m.a.weight).sum(0)),
        "[torch.func] a function inside of the body is transformed for a tensor from outside"),
    "of weights by name": (
        a_round(lambda m, v: grad(lambda p: functional_call(m.a, p, (v,)).tanh().sum())(
            dict(m.a.named_parameters()))["bias"]),
        "[torch.func] a function inside of the body is transformed for a tensor from outside"),
    "of a loop": (
        lambda m, x: grad(lambda u: for_loop(2, torch.tanh, [u])[0].sum())(m.a(x)),
        "[for_loop] loops and conditions inside of functions that torch.func transforms"),
    "of a branch": (
        lambda m, x: vmap(lambda u: cond(x.sum() > 0, m.a, [u], m.b, [u])[0])(x),
        "[cond] loops and conditions inside of functions that torch.func transforms"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    function, words = REFUSED[name]
    net = Net(function)
    with pytest.raises(poptorch.Error, match=rf"{re.escape(words)}(?s:.*)_in_loops\.py:"):
        poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.1))(
            torch.randn(3, 4))
