"""What forward says of operations, from the capture to the IR."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import poptorch
from poptorch import _C
from poptorch._annotations import annotations
from poptorch._annotations.annotations import KINDS, entered
from poptorch._capture import capture
from tests.capture.common import Function, check_training, nodes

aten = torch.ops.aten


def values(captured, kind, is_wanted=lambda node: True):
    """The value of a kind at each operation."""
    return [node.meta["annotations"].get(kind) for node in nodes(captured) if is_wanted(node)]


def captured_of(forward, *args, training=False, **parameters):
    return capture(Function(forward, parameters), args, training=training)


def matrix(*size):
    return torch.randn(*(size or (4, 4)))


def lines(text, op):
    """The lines of IR text that hold an op."""
    return [line for line in text.splitlines() if f" {op} " in line]


def test_the_kinds_of_the_ir_are_in_its_table():
    known = _C.annotations()
    assert {name for name, kind in KINDS.items() if kind.attribute} <= known.keys()
    rows = {row["name"] for row in _C.op_table()}
    assert {op for ops in known.values() for op in ops} <= rows


@pytest.mark.parametrize(("kind", "outer", "inner", "both"), [
    ("available_memory", 0.3, 0.2, 0.2),
    ("attributes", {"a": 1, "b": 1}, {"b": 2}, {"a": 1, "b": 2}),
    ("scope", ("encoder",), ("layer",), ("encoder", "layer")),
    ("plan_type", "parallel", "serial", "serial"),
    ("serialization", (0, 2), (1, 4), (1, 4)),
])
def test_an_inner_one_is_merged_with_the_outer_one(kind, outer, inner, both):
    def forward(m, x):
        x = x.relu()
        with entered(kind, outer):
            x = x.neg()
            with entered(kind, inner):
                x = x.abs()
            x = x.exp()
        return x.sin()

    assert values(captured_of(forward, matrix()), kind) == [None, outer, both, outer, None]


def test_blocks_and_others_stand_side_by_side():
    def forward(m, x):
        with poptorch.Block("a"), entered("available_memory", 0.3):
            poptorch.Block.start("b")
            return x.relu()

    captured = captured_of(forward, matrix())
    assert [use.user_id for use in values(captured, "block")] == ["b"]
    assert values(captured, "available_memory") == [0.3]


def test_an_error_leaves_what_was_entered():
    def forward(m, x):
        with entered("available_memory", 0.3):
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="^stop$"):
        captured_of(forward, matrix())
    assert not annotations.current().values
    assert values(captured_of(lambda m, x: x.relu(), matrix()), "available_memory") == [None]


def test_outside_of_a_capture_nothing_is_entered():
    with entered("available_memory", 0.3):
        assert not annotations.current().values


def test_a_value_of_another_class_is_refused():
    def forward(m, x):
        with entered("available_memory", "0.3"):
            return x

    with pytest.raises(poptorch.Error, match=r"^\[annotations\] a value of available_memory is "
                       r"expected to be of class float, got str '0.3'\.\n  at .*annotations.py:"):
        captured_of(forward, matrix())


def test_what_capture_makes_of_an_operation_is_annotated_as_it_is():
    def forward(m, x, y):
        with entered("available_memory", 0.3):
            decomposed = torch.addbmm(x, torch.stack([y, y]), torch.stack([y, y]))
            composite = F.linear(x, y)
            changed = x.clone()
            changed[0].mul_(2)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                cast = x @ y
        return decomposed + composite + changed + cast

    captured = captured_of(forward, matrix(), matrix())
    sums = nodes(captured)[-3:]
    inner = values(captured, "available_memory", lambda node: node not in sums)
    assert len(inner) > 10
    assert set(inner) == {0.3}
    targets = {node.target for node in nodes(captured)}
    assert {aten.addmm.default, aten.select_scatter.default, aten._to_copy.default} <= targets
    assert {node.meta["annotations"].get("available_memory") for node in sums} == {None}


def test_gradients_have_what_their_kind_says():
    def forward(m, x):
        with entered("available_memory", 0.3), entered("serialization", (1, 2)):
            y = x @ m.w
        return F.mse_loss(y.relu(), x)

    captured = captured_of(forward, matrix(), training=True, w=matrix())
    products = nodes(captured, aten.mm.default)
    assert [node.meta["backward"] for node in products] == [False, True]
    assert [node.meta["annotations"].values for node in products] == [
        {"available_memory": 0.3, "serialization": (1, 2)}, {"available_memory": 0.3}]
    relu = nodes(captured, aten.relu.default) + nodes(captured, aten.threshold_backward.default)
    assert [node.meta["annotations"].values for node in relu] == [{}, {}]


def test_recomputed_operations_have_what_they_had():
    def inner(w, x):
        x = (x @ w).sin()
        with entered("available_memory", 0.1), poptorch.NameScope("inner"):
            x = (x @ w).sin()
        return (x @ w).sin()

    def forward(m, x):
        with poptorch.NameScope("outer"), entered("available_memory", 0.3):
            x = checkpoint(inner, m.w, x, use_reentrant=False)
        with entered("available_memory", 0.9):
            return x, F.mse_loss(x, torch.zeros_like(x))

    module = Function(forward, {"w": matrix().double()})
    captured = check_training(module, matrix().double())
    products = [node for node in nodes(captured, aten.mm.default)
                if not node.meta["backward"] or node.meta["recompute"]]
    found = [(node.meta["recompute"] > 0, node.meta["annotations"].get("available_memory"),
              node.meta["annotations"].get("scope")) for node in products]
    outer, inner = (0.3, ("outer",)), (0.1, ("outer", "inner"))
    forwards = [(False, *outer), (False, *inner), (False, *outer)]
    # The last product is not needed again.
    assert found == forwards + [(True, *rest) for _, *rest in forwards[:2]] + found[5:]
    assert found[5:] in ([], [(True, 0.3, ("outer",))])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 2, 3), nn.Linear(18, 4)
        self.table = nn.Embedding(7, 4)

    def forward(self, x, i, target):
        with entered("available_memory", 0.3):
            y = self.conv(x).relu().flatten(1)
            with entered("serialization", (1, 2)):
                y = self.fc(y)
            y = y + self.table(i)
        return y, F.cross_entropy(y, target)


@pytest.mark.parametrize("step", ["translate", "rewrite", "place"])
def test_the_ir_has_them_on_the_ops_that_can_carry_them(step):
    model = poptorch.trainingModel(Net())
    model.compile(torch.randn(2, 1, 5, 5), torch.tensor([1, 3]), torch.tensor([0, 2]))
    text = model.ir(step)
    carriers = ["convolution", "convolution_backward", "addmm", "matmul", "embedding",
                "embedding_backward"]
    for op in carriers:
        assert lines(text, op), op
        assert all("available_memory=0.3" in line for line in lines(text, op)), op
    assert text.count("available_memory") == sum(len(lines(text, op)) for op in carriers)
    assert text.count("serialization") == 1
    assert "serialization=[1, 2]" in lines(text, "addmm")[0]


def test_equal_operations_of_unlike_annotations_are_not_computed_once():
    def forward(m, x, y):
        first = x @ y
        with entered("available_memory", 0.3):
            second = x @ y
        with entered("available_memory", 0.3):
            return first + second + x @ y

    model = poptorch.inferenceModel(Function(forward))
    x, y = matrix(), matrix()
    torch.testing.assert_close(model(x, y), 3 * (x @ y))
    assert len(lines(model.ir("rewrite"), "matmul")) == 2


def test_hints_are_in_the_ir_and_change_nothing():
    def forward(m, x):
        with poptorch.Attribute(__outline={"layer": "a"}, ids=[1, 2.5, True, None]):
            x = x.relu()
            with poptorch.Attribute(ids=2**80):
                x = x.exp()
        return x.sin()

    model = poptorch.inferenceModel(Function(forward))
    x = matrix()
    torch.testing.assert_close(model(x), x.relu().exp().sin())
    text = model.ir("translate")
    outline = '["__outline", [["layer", "a"]]]'
    assert f'{{attributes=[{outline}, ["ids", [1, 2.5, true, none]]],' in lines(text, "relu")[0]
    assert f'{{attributes=[{outline}, ["ids", "{2**80}"]],' in lines(text, "exp")[0]
    assert "attributes" not in lines(text, "sin")[0]
    assert len(lines(model.ir("lower"), "fused")) == 1
