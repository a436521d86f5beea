"""Gradients of results that the loss does not use: the backward graph does not take them."""

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import poptorch
from poptorch._torch_compile.graph import CompiledGraph
from poptorch._torch_compile.zero_gradients import without_gradients
from tests.helpers import quiet_options
from tests.torch_compile.test_calls import called

aten = torch.ops.aten


def names(function, *inputs, zeros):
    """The targets of the graph of a function without the arguments ``zeros``, and its results."""
    graph = without_gradients(make_fx(function, tracing_mode="fake")(*inputs), zeros)
    graph.graph.lint()
    rest = [x for place, x in enumerate(inputs) if place not in zeros]
    expected = function(*(x if place not in zeros else torch.zeros_like(x)
                          for place, x in enumerate(inputs)))
    torch.testing.assert_close(graph(*rest), expected)
    return [node.target.overloadpacket for node in graph.graph.nodes
            if node.op == "call_function"]


@pytest.mark.parametrize(("function", "targets"), [
    (lambda x, y: x + y.sin(), [aten.sin]),
    (lambda x, y: y.sin() + x.t().reshape(3, 3).t(), [aten.sin]),
    (lambda x, y: (y + x, x * y), [aten.full, aten.mul]),
    (lambda x, y: (x.view(9), y * 2), [aten.full, aten.mul]),
    (lambda x, y: x[:1] + y, [aten.full, aten.slice, aten.add]),
    (lambda x, y: torch.add(y, x, alpha=2), [aten.full, aten.add]),
    (lambda x, y: x.double() + y, [aten.full, aten.add]),
    (lambda x, y: x + 1 + y, [aten.full, aten.add, aten.add]),
    (lambda x, y: x + x + y.sin(), [aten.sin]),
])
def test_graphs(function, targets):
    assert names(function, torch.randn(3, 3), torch.randn(3, 3), zeros={0}) == targets


def classifier(x, weight, target):
    out = x @ weight
    return out, nn.functional.cross_entropy(out, target)


@pytest.fixture
def backward_arguments(monkeypatch):
    """The number of arguments of each backward graph that runs for the first time."""
    found, build = [], CompiledGraph._build

    def noted(graph, arguments):
        found.append(len(arguments))
        build(graph, arguments)

    monkeypatch.setattr(CompiledGraph, "_build", noted)
    return found


@pytest.mark.parametrize("uses", [
    [(1,), (1,), (0, 1), (1,), (0,)],
    [(0, 1), (0, 1), (1,), (0,)],
    [(0,), (1,), (0,)],
])
def test_results_in_a_loss(uses, backward_arguments):
    x, weight = torch.randn(4, 3), torch.randn(3, 5, requires_grad=True)
    target = torch.randint(0, 5, (4,))
    run = poptorch.compile(classifier, quiet_options())
    for used in uses:
        gradients = []
        for function in (run, classifier):
            results = function(x, weight, target)
            loss = sum(results[index].square().sum() for index in used)
            gradients += torch.autograd.grad(loss, weight)
        torch.testing.assert_close(*gradients)
    forward, *backward = backward_arguments
    assert forward == 3
    assert backward == ([backward[0]] if len(uses[0]) == 2 else [backward[0], backward[0] + 1])


def test_second_derivatives_after_a_pass_without_a_gradient():
    x = torch.randn(3, requires_grad=True)
    run = called(lambda x: (x.sin(), x.exp()), x)
    for create_graph in (False, True, False):
        (gradient,) = torch.autograd.grad(run(x)[0].sum(), x, create_graph=create_graph)
        torch.testing.assert_close(gradient, x.cos())


def test_no_result_has_a_gradient():
    x = torch.randn(3, requires_grad=True)
    run = poptorch.compile(lambda x: x.sin(), quiet_options())
    for _ in range(2):
        y = run(x)
        y.grad_fn.register_prehook(lambda gradients: (None,))
        y.sum().backward()
        torch.testing.assert_close(x.grad, torch.zeros(3))
