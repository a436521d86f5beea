"""Regions: the bodies of loops, graphs with explicit captures in a captured graph."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph

import poptorch
from poptorch._base import capture_context
from poptorch._capture import capture
from poptorch._capture.graph.regions import region_of
from tests.capture.common import Function, check_inference, check_training
from tests.capture.graph_text import text

aten = torch.ops.aten


def matrix(*size):
    return torch.randn(*(size or (4, 4))).double()


def regions(captured):
    return [region_of(node) for node in captured.graph.nodes if region_of(node)]


def targets(graph):
    return [node.target for node in graph.nodes if node.op == "call_function"]


def check_closed(graph):
    """No node has operands of another graph."""
    for node in graph.nodes:
        assert all(source.graph is graph for source in node.all_input_nodes), node
        if region_of(node):
            check_closed(region_of(node).graph)


OUTSIDE = torch.full((4,), 2.0).double()


def test_captures_are_explicit():
    def forward(m, x):
        y = x + 1
        return poptorch.for_loop(3, lambda z: [(z @ m.w + OUTSIDE + y).relu()], [y])[0]

    captured = capture(Function(forward, {"w": matrix()}), (matrix(),), training=False)
    check_closed(captured.graph)
    loop, = regions(captured)
    names = [node.name for node in loop.node.args]
    assert names[loop.rounds.carried:] == ["w", "constant_0", "add"]
    lines = text(captured).splitlines()
    assert "    %constant_0 : float64[4]" in lines
    assert sum("aten.mm.default" in line for line in lines) == 1


def test_regions_in_regions_capture_through_each():
    def forward(m, x):
        def outer(y):
            return poptorch.for_loop(2, lambda z: [z * m.w + x], [y])

        return poptorch.for_loop(2, outer, [x])[0]

    captured = capture(Function(forward, {"w": matrix()}), (matrix(),), training=False)
    check_closed(captured.graph)
    outer, = regions(captured)
    inner, = regions(outer)
    for loop in (outer, inner):
        assert {node.name for node in loop.node.args[loop.rounds.carried:]} == {"w", "args_0"}


def test_the_shape_of_an_outer_tensor_is_not_changed():
    def forward(m, x):
        y = x * 2

        def body(z):
            y.t_()
            return [z + 1]

        return poptorch.for_loop(2, body, [x])

    with pytest.raises(poptorch.Error, match=r"^\[capture\] forward changes the shape \[3, 4\] of "
                       r"a tensor in place \(aten\.t_\.default\) in the body of a loop or a "
                       r"branch, but the tensor was created outside of the body\. Change a new "
                       r"view of it instead\.\n  at .*test_regions\.py:"):
        capture(Function(forward), (matrix(3, 4),), training=False)


def test_an_error_leaves_the_region():
    def forward(m, x):
        try:
            return poptorch.for_loop(2, lambda y: [y @ torch.ones(7)], [x])
        except RuntimeError:
            return x * 2

    captured = check_inference(Function(forward), matrix())
    assert targets(captured.graph) == [aten.mul.Tensor]


def test_other_operations_on_functions_are_refused():
    def forward(m, x):
        return torch.ops.higher_order.associative_scan(torch.add, [x], ())

    with pytest.raises(poptorch.Error, match=r"^\[associative_scan\] forward calls torch\.ops\."
                       r"higher_order\.associative_scan, an operation on functions, which is not "
                       r"implemented\. Use (?s:.*)test_regions\.py:"):
        capture(Function(forward), (matrix(),), training=False)


class Part(nn.Module):
    def forward(self, x, w):
        return F.dropout((x @ w).relu(), 0.0), w.sum()


def test_a_subgraph_runs_in_place():
    def forward(m, x):
        for _ in range(2):
            if capture_context.is_capturing():
                x, s = invoke_subgraph(m.part, "part_0", x, m.w)
            else:
                x, s = m.part(x, m.w)
        return x * s, F.mse_loss(x, x.detach() + 1)

    module = Function(forward, {"w": matrix()})
    module.part = torch.fx.symbolic_trace(Part())
    captured = check_training(module, matrix())
    assert not regions(captured)
    # The sum of the first one is not used.
    assert targets(captured.graph).count(aten.sum.default) == 1
