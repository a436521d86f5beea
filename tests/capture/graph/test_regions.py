"""Regions: graphs in a captured graph, with explicit captures and results."""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph

import poptorch
from poptorch._base import capture_context
from poptorch._capture import capture
from poptorch._capture.graph.inlining import inlined
from poptorch._capture.graph.regions import placeholders, region_of
from tests.capture.common import Function, check_inference, check_training
from tests.capture.reference import evaluate

aten = torch.ops.aten


class region:
    """In a capture what runs inside is a region; in eager nothing."""

    def __init__(self, name="part"):
        self._name = name

    def __enter__(self):
        now = capture_context.current()
        self._entered = now and now.recorder.region(self._name)
        if now:
            self._entered.__enter__()

    def __exit__(self, *exception):
        if self._entered:
            self._entered.__exit__(*exception)


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


def test_captures_and_results_are_explicit():
    def forward(m, x):
        y = x + 1
        with region():
            z = (y @ m.w + OUTSIDE + m.b).relu()
        return z * 2

    captured = check_inference(
        Function(forward, {"w": matrix()}, {"b": matrix()}), matrix())
    check_closed(captured.graph)
    part, = regions(captured)
    assert [node.name for node in part.node.args] == ["add", "w", "constant_0", "b"]
    assert captured.text().splitlines()[4:] == [
        "%add = aten.add.Tensor(%args_0, 1) : float64[4,4]",
        "%part = region(%add, %w, %constant_0, %b) : (float64[4,4])",
        "    %add : float64[4,4]",
        "    %w : float64[4,4]",
        "    %constant_0 : float64[4]",
        "    %b : float64[4,4]",
        "    %mm = aten.mm.default(%add, %w) : float64[4,4]",
        "    %add_1 = aten.add.Tensor(%mm, %constant_0) : float64[4,4]",
        "    %add_2 = aten.add.Tensor(%add_1, %b) : float64[4,4]",
        "    %relu = aten.relu.default(%add_2) : float64[4,4]",
        "    return [%relu]",
        "%getitem = getitem(%part, 0) : float64[4,4]",
        "%mul = aten.mul.Tensor(%getitem, 2) : float64[4,4]",
        "output 0: %mul"]
    flat = inlined(captured)
    assert targets(flat.graph) == [aten.add.Tensor, aten.mm.default, aten.add.Tensor,
                                   aten.add.Tensor, aten.relu.default, aten.mul.Tensor]
    assert inlined(flat) is flat


def test_regions_in_regions_capture_through_each():
    def forward(m, x):
        with region("outer"):
            y = x * 2
            with region("first"):
                a = x + y + m.w
            with region("second"):
                b = a * y
        return b + a

    captured = check_inference(Function(forward, {"w": matrix()}), matrix())
    check_closed(captured.graph)
    outer, = regions(captured)
    assert [node.name for node in outer.node.args] == ["args_0", "w"]
    first, second = regions(outer)
    assert [node.name for node in first.node.args] == ["args_0", "mul", "w"]
    assert [node.target for node in second.node.args] == [operator.getitem, aten.mul.Tensor]
    assert len(outer.node.meta["val"]) == 2


def test_gradients_take_results_of_a_region():
    def forward(m, x):
        with region("outer"):
            y = F.dropout((x @ m.w).sigmoid(), 0.0)
            with region("inner"):
                y = (y @ m.w).exp()
        return y, F.mse_loss(y, x)

    captured = check_training(Function(forward, {"w": matrix() * 0.3}), matrix())
    check_closed(captured.graph)
    outer, = regions(captured)
    # Both activations; their gradients are outside.
    assert len(outer.node.meta["val"]) == 2
    assert not any(node.meta["backward"] for node in outer.graph.nodes if node.op != "output")


def test_what_nobody_uses_is_removed():
    def forward(m, x, unused):
        with region():
            y = x * 2
            z = (unused @ m.w).relu()
        with region("useless"):
            m.w + 1
        with region("empty"):
            pass
        return y, z.shape[0]

    captured = check_inference(Function(forward, {"w": matrix()}), matrix(), matrix())
    part, = regions(captured)
    assert [node.name for node in part.node.args] == ["args_0"]
    assert targets(part.graph) == [aten.mul.Tensor]
    assert len(placeholders(captured.graph)) == 3


def test_changes_of_outer_tensors_are_results():
    def forward(m, x, y):
        z = x + 1
        view = z[1:]
        with region("outer"):
            z.mul_(2)
            m.b.add_(z)
            with region("inner"):
                y[0].exp_()
            s = y.sum()
        return z, view * s, m.b.clone()

    captured = check_inference(Function(forward, buffers={"b": matrix()}), matrix(), matrix())
    check_closed(captured.graph)
    assert {(spec.kind, spec.name) for spec in captured.outputs} >= {
        ("input_update", "args.1"), ("buffer_update", "b")}


def test_changes_after_a_region_are_of_its_results():
    def forward(m, x):
        with region():
            y = x * 2
            z = y + 1
            y += 3
        y.mul_(4)
        with region():
            z.sub_(y)
        return y, z, x

    check_inference(Function(forward), matrix())


def test_views_of_outer_tensors_are_changed_in_a_region():
    def forward(m, x):
        with region():
            first, rest = x.split([1, 3])
            rest.t().mul_(2)
            y = first + rest
        outer = x[2:]
        with region():
            outer[0].exp_()
        return y, x * 1

    check_inference(Function(forward), matrix())


@pytest.mark.parametrize("returned", [
    lambda x: x.view(-1), lambda x: x[1:], lambda x: (x * 1).split(2)])
def test_a_view_that_leaves_a_region_is_not_changed(returned):
    def forward(m, x):
        with region():
            y = returned(x)
        both = [y] if isinstance(y, torch.Tensor) else list(y)
        both[0].add_(1)
        return x, both

    with pytest.raises(poptorch.Error, match=r"^\[capture\] a tensor is changed in place, and a "
                       r"region of the graph before it gave a view of that tensor, or several "
                       r"tensors that lie in the same memory\. Return copies from the region: "
                       r"`x\.clone\(\)`\.\n  at .*test_regions\.py:"):
        capture(Function(forward), (matrix(),), training=False)


def test_what_a_view_that_leaves_a_region_shows_is_not_changed():
    def forward(m, x):
        with region():
            y = x.view(-1)
        x.add_(1)
        return y

    with pytest.raises(poptorch.Error, match="gave a view of that tensor"):
        capture(Function(forward), (matrix(),), training=False)


def test_views_may_leave_a_region_where_nothing_is_changed():
    def forward(m, x):
        with region():
            y, z = x.view(-1), x.t()
        return y * 2, z + 1

    check_inference(Function(forward), matrix())


def test_of_two_captures_in_one_memory_none_is_changed():
    def forward(m, x):
        view = x.t()
        with region():
            x.add_(1)
            return view * 2

    with pytest.raises(poptorch.Error, match=r"^\[capture\] a region of the graph changes a tensor "
                       r"in place and takes another one too that lies in the same memory\. Make "
                       r"the view of it inside of the region, or pass a copy: `x\.clone\(\)`\."):
        capture(Function(forward), (matrix(),), training=False)


def test_the_shape_of_an_outer_tensor_is_not_changed():
    def forward(m, x):
        y = x * 2
        with region():
            y.t_()
        return y

    with pytest.raises(poptorch.Error, match=r"^\[capture\] the shape of a tensor of \[3, 4\] is "
                       r"changed in place \(aten\.t_\.default\) in a region of the graph, or after "
                       r"it, and the tensor was made on the other side of its border\. Change a "
                       r"new view of it instead\.\n  at .*test_regions\.py:"):
        capture(Function(forward), (matrix(3, 4),), training=False)


def test_elements_at_places_that_tensors_name():
    def inside(m, x, i):
        with region():
            x[i] += 1
            x[i].mul_(2)
        return x * 1

    check_inference(Function(inside), matrix(), torch.tensor(2))

    def outside(m, x, i):
        with region():
            y = x[i]
        y.add_(1)
        return x

    with pytest.raises(poptorch.Error, match="gave a view of that tensor"):
        capture(Function(outside), (matrix(), torch.tensor(2)), training=False)

    def shown(m, x, i):
        y = x[i]
        with region("outer"), region("inner"):
            z = y.view(-1)
        x.add_(1)
        return z

    with pytest.raises(poptorch.Error, match="gave a view of that tensor"):
        capture(Function(shown), (matrix(), torch.tensor(2)), training=False)

    def across(m, x, i):
        y = x[i]
        with region():
            y.add_(1)
            return x * y

    with pytest.raises(poptorch.Error, match="takes another one too that lies in the same memory"):
        capture(Function(across), (matrix(), torch.tensor(2)), training=False)


def test_values_that_a_gradient_keeps_are_those_of_their_time():
    def forward(m, x):
        x = x @ m.w
        with region():
            y = m.layer(x)[0]
            y = y * 2
            x.mul_(3)
        return y, F.mse_loss(y, x.detach())

    module = Function(forward, {"w": matrix()})
    module.layer = nn.GRU(4, 4).double()
    captured = capture(module, (matrix(2, 4),), training=True)
    check_closed(captured.graph)

    def plain(m, x):
        x = x @ m.w
        y = m.layer(x)[0] * 2
        return y, F.mse_loss(y, (x * 3).detach())

    other = Function(plain, {"w": module.w.detach().clone()})
    other.layer = module.layer
    x = matrix(2, 4)
    ours = evaluate(captured, [x])[1]["grad"]
    expected = evaluate(capture(other, (x,), training=True), [x])[1]["grad"]
    for name, gradient in expected.items():
        torch.testing.assert_close(ours[name], gradient)


def test_a_constant_that_a_region_changes_has_no_value():
    constant = torch.zeros(())

    def forward(m, x):
        with region():
            constant.add_(1)
        return x * constant.item()

    with pytest.raises(poptorch.Error, match="Python code needs the value of a tensor"):
        capture(Function(forward), (matrix(),), training=False)


def test_an_input_whose_layout_is_seen_in_a_region():
    def forward(m, x):
        with region():
            y = x.reshape(-1)
            y.add_(1)
        return x * 1

    captured = check_inference(Function(forward), matrix())
    assert [spec.layout for spec in captured.inputs] == [([4, 1], None)]


def test_nodes_of_a_region_know_where_they_come_from():
    def forward(m, x):
        with poptorch.Block("b", ipu_id=0), region():
            y = m.layer(x)
            with poptorch.NameScope("scope"):
                return y.relu()

    module = Function(forward)
    module.layer = nn.Linear(4, 4).double()
    part, = regions(capture(module, (matrix(),), training=False))
    product, relu = (node for node in part.graph.nodes
                     if node.target in (aten.addmm.default, aten.relu.default))
    assert {node.meta["annotations"].get("block").user_id for node in (product, relu)} == {"b"}
    assert (product.meta["module"], relu.meta["module"]) == ("layer", "scope/")
    assert part.node.meta["place"][0].endswith("test_regions.py")


def test_an_error_leaves_the_region():
    def forward(m, x):
        try:
            with region():
                x @ torch.ones(7)
        except RuntimeError:
            return x * 2

    captured = check_inference(Function(forward), matrix())
    assert targets(captured.graph) == [aten.mul.Tensor]


@pytest.mark.parametrize("training", [False, True])
def test_a_program_with_regions_runs(training):
    def forward(m, x):
        with region():
            m.calls.add_(1)
            y = F.relu(x @ m.w)
        return y, F.mse_loss(y, x)

    def module():
        torch.manual_seed(0)
        return Function(forward, {"w": torch.randn(4, 4)}, {"calls": torch.zeros(())})

    ours, eager, x = module(), module(), torch.randn(4, 4)
    if training:
        model = poptorch.trainingModel(ours, optimizer=torch.optim.SGD(ours.parameters(), lr=0.1))
        optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    else:
        model = poptorch.inferenceModel(ours)
    for _ in range(2):
        y, loss = model(x)
        expected, expected_loss = eager(x)
        if training:
            optimizer.zero_grad()
            expected_loss.backward()
            optimizer.step()
    torch.testing.assert_close((y, loss), (expected.detach(), expected_loss.detach()))
    model.copyWeightsToHost()
    torch.testing.assert_close(ours.w, eager.w)
    assert ours.calls == 2
    assert "mm" in "".join(model.getTensorNames())


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


def test_a_subgraph_that_is_invoked_twice_is_two_regions():
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
    check_closed(captured.graph)
    assert [part.node.name for part in regions(captured)] == ["part_0", "part_1"]
    # The sum is used of the second one alone.
    assert [targets(part.graph).count(aten.sum.default) for part in regions(captured)] == [0, 1]
