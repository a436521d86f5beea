"""Every node knows the user's file and line, the module, and the block: backward nodes too."""

import inspect

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import poptorch
from poptorch._annotations import annotations
from poptorch._capture import capture
from tests.capture.common import Function, nodes


def line_of(function, text):
    source, start = inspect.getsourcelines(function)
    return start + next(i for i, line in enumerate(source) if text in line)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x, y):
        hidden = self.first(x)
        out = self.rest(hidden * 2)
        loss = F.mse_loss(out, y)
        return out, loss


def test_lines_and_modules():
    captured = capture(Net(), (torch.randn(5, 3), torch.randn(5, 2)), training=True)
    lines = {text: line_of(Net.forward, text) for text in ("self.first(", "self.rest(", "mse_loss")}
    seen = {}
    for node in nodes(captured):
        assert node.meta["place"][0] == __file__ if node.meta["place"] else \
            node.name.startswith("ones_like")
        key = (node.target.__name__, node.meta["backward"])
        seen.setdefault(key, []).append((node.meta["place"] and node.meta["place"][1],
                                         node.meta["module"]))
    assert seen["addmm.default", False] == [
        (lines["self.first("], "first"), (lines["self.rest("], "rest.1")]
    assert seen["relu.default", False] == [(lines["self.rest("], "rest.0")]
    assert seen["threshold_backward.default", True] == [(lines["self.rest("], "rest.0")]
    assert seen["mse_loss.default", False] == [(lines["mse_loss"], "")]
    assert seen["mse_loss_backward.default", True] == [(lines["mse_loss"], "")]
    assert set(seen["mm.default", True]) == {
        (lines["self.first("], "first"), (lines["self.rest("], "rest.1")}
    assert seen["mul.Tensor", True] == [(lines["self.rest("], "")]


def test_every_gradient_knows_its_forward_node():
    captured = capture(Net(), (torch.randn(5, 3), torch.randn(5, 2)), training=True)
    for spec in captured.outputs:
        if spec.kind == "grad":
            assert spec.node.meta["module"] == spec.name.rpartition(".")[0]


def test_modules_that_raise_and_are_caught_leave_no_name():
    class Raises(nn.Module):
        def forward(self, x):
            raise ValueError

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.ReLU(), Raises())

        def forward(self, x):
            try:
                x = self.inner(x)
            except ValueError:
                x = x + 1
            return x * 2

    captured = capture(Outer(), (torch.ones(2),), training=False)
    assert nodes(captured)[-1].meta["module"] == ""


def block_of(node):
    block = node.meta["annotations"].get("block")
    return block and (block.user_id, block.ipu_id)


class Recomputed(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(layers))

    def part(self, x, layer):
        return torch.tanh(layer(x)).exp()

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            with poptorch.Block(f"b{index}", ipu_id=index):
                x = checkpoint(self.part, x, layer, use_reentrant=False)
        return F.mse_loss(x, torch.zeros_like(x))


def test_recomputed_nodes():
    captured = capture(Recomputed(), (torch.randn(2, 3),), training=True)
    again = [n for n in nodes(captured) if n.meta["recompute"]]
    assert {n.meta["recompute"] for n in again} == {1, 2}
    for node in again:
        layer = 2 - node.meta["recompute"]  # the last layer is recomputed first
        assert node.meta["module"] in ("", f"layers.{layer}")
        assert block_of(node) == (f"b{layer}", layer)
        assert node.meta["backward"]
        assert node.meta["place"] == (__file__, line_of(Recomputed.part, "torch.tanh"))
    tanh = [n for n in nodes(captured) if n.target is torch.ops.aten.tanh.default]
    assert [n.meta["recompute"] for n in tanh] == [0, 0, 1, 2]


def test_gradients_written_by_the_user_name_their_own_line():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient.neg() * -2

    module = Function(lambda m, x: poptorch.identity_loss(Double.apply(x * m.w), "sum"),
                      {"w": torch.ones(1)})
    captured = capture(module, (torch.ones(3),), training=True)
    (negated,) = nodes(captured, torch.ops.aten.neg.default)
    assert negated.meta["place"] == (__file__, line_of(Double.backward, "gradient.neg"))
    assert negated.meta["backward"] and not negated.meta["recompute"]


# -- blocks ------------------------------------------------------------------------------------


def blocks_of(forward, *parts):
    module = Function(forward)
    for name, part in zip("abc", parts):
        module.add_module(name, part)
    captured = capture(module, (torch.ones(1, 2),), training=False)
    relus = nodes(captured, torch.ops.aten.relu.default)
    return [block_of(n) for n in relus]


def test_blocks_as_contexts():
    def forward(m, x):
        x = F.relu(x)
        with poptorch.Block("one", ipu_id=3):
            x = F.relu(x)
            with poptorch.Block():
                x = F.relu(x)
            x = F.relu(x)
        with poptorch.Block(7):
            x = F.relu(x)
        return F.relu(x)

    assert blocks_of(forward) == [
        None, ("one", 3), ("0", None), ("one", 3), ("7", None), None]


def test_blocks_without_scope_and_functions():
    @poptorch.BlockFunction("f", ipu_id=1)
    def function(x):
        return F.relu(x)

    def forward(m, x):
        poptorch.Block.useAutoId()
        poptorch.Block.start(ipu_id=2)
        x = F.relu(x)
        x = F.relu(function(x))
        poptorch.Block.start()
        return F.relu(x)

    assert blocks_of(forward) == [("0", 2), ("f", 1), ("0", 2), ("1", None)]
    assert blocks_of(forward) == [("0", 2), ("f", 1), ("0", 2), ("1", None)]


def test_automatic_ids_begin_anew_when_told():
    def forward(m, x):
        poptorch.Block.start(ipu_id=0)
        x = F.relu(x)
        poptorch.Block.useAutoId()
        poptorch.Block.start(ipu_id=0)
        return F.relu(x)

    assert blocks_of(forward) == [("0", 0), ("0", 0)]


def test_blocks_of_modules_last_until_the_next():
    def forward(m, x):
        return F.relu(m.b(F.relu(m.a(F.relu(x)))))

    a = poptorch.BeginBlock(nn.ReLU(), "a", ipu_id=0)
    b = poptorch.BeginBlock(nn.Sequential(nn.ReLU(), poptorch.BeginBlock(nn.ReLU(), ipu_id=2)),
                            "b", 1)
    assert blocks_of(forward, a, b) == [
        None, ("a", 0), ("a", 0), ("b", 1), ("0", 2), ("0", 2)]
    poptorch.removeBlocks(b)
    assert blocks_of(forward, a, b) == [None] + [("a", 0)] * 5


def test_backward_nodes_have_the_block_of_their_forward_node():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = poptorch.BeginBlock(nn.Linear(2, 2), "a", 0)
            self.b = poptorch.BeginBlock(nn.Linear(2, 2), "b", 1)

        def forward(self, x):
            return F.mse_loss(self.b(torch.tanh(self.a(x))), x)

    captured = capture(Two(), (torch.ones(1, 2),), training=True)
    for node in nodes(captured):
        if node.meta["backward"] and node.meta["module"]:
            expected = {"a": ("a", 0), "b": ("b", 1)}[node.meta["module"]]
            assert block_of(node) == expected
    assert {block_of(n) for n in nodes(captured) if n.meta["backward"]} >= {
        ("a", 0), ("b", 1)}


def test_blocks_do_nothing_outside_of_a_capture():
    with poptorch.Block("x"):
        poptorch.Block.start("y")
        assert not annotations.current().values
    assert poptorch.BeginBlock(nn.ReLU())(torch.tensor(-1.0)) == 0
    assert not annotations.current().values


@pytest.mark.parametrize("training", [True, False])
def test_an_error_within_a_block_leaves_it(training):
    def forward(m, x):
        with poptorch.Block("x"):
            poptorch.Block.start("y")
            raise KeyError

    with pytest.raises(KeyError):
        capture(Function(forward), (torch.ones(1),), training=training)
    assert not annotations.current().values
