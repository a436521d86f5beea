"""The op table against PyTorch's schemas, and what single ops say about mistakes."""

import numpy as np
import pytest
import torch

import poptorch._capture.functions.others  # noqa: F401  (registers poptorch:: ops)
import poptorch._capture.functions.recurrent  # noqa: F401  (registers poptorch:: ops)
from poptorch import _C
from poptorch.errors import Error
from tests.helpers import Cases

ROWS = _C.op_table()
# Arguments that translate resolves before it looks at the row.
RESOLVED = {
    "device", "dtype", "generator", "half_to_float", "implicit", "layout", "memory_format",
    "like_query", "pin_memory",
}


def bare(names):
    """Operand names without the marks for optional and variadic ones."""
    return [name.rstrip("?*") for name in names]


def schemas_of(overload):
    """Schemas of ``aten::name.overload``; without an overload, those of all."""
    namespace, _, name = overload.partition("::")
    name, _, kind = name.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name)
    kinds = [kind] if kind else packet.overloads()
    return [getattr(packet, kind)._schema for kind in kinds]


def plain_arguments(schema):
    """Names of the non-tensor arguments."""
    return {a.name for a in schema.arguments if "Tensor" not in str(a.type)}


def test_rows_are_sorted_and_documented():
    names = [row["name"] for row in ROWS]
    assert names == sorted(set(names))
    assert [row["name"] for row in ROWS if not row["doc"].endswith((".", ")"))] == []


def test_rows_fit_the_schemas():
    with Cases() as cases:
        for row in ROWS:
            known = set(bare(row["operands"])) | {name for name, *_ in row["attrs"]} | RESOLVED
            for overload in row["aten"]:
                with cases.case(row["name"], overload):
                    unknown = [plain_arguments(schema) - known for schema in schemas_of(overload)]
                    assert set() in unknown, f"no attributes for {unknown}"


def test_inplace_names_operands():
    with Cases() as cases:
        for row in ROWS:
            with cases.case(row["name"]):
                assert len(row["inplace"]) <= len(row["results"])
                for candidates in row["inplace"]:
                    assert all(0 <= i < len(row["operands"]) for i in candidates)


VIEWS = {"diagonal": ": f32[2]", "expand": "{size=[4,2,3]} : f32[4,2,3]",
         "permute": "{dims=[1,0]} : f32[3,2]", "reshape": "{size=[6]} : f32[6]",
         "slice": "{end=1} : f32[1,3]"}


def test_rows_of_views_become_views():
    assert {row["name"] for row in ROWS if row["view"]} == {*VIEWS, "view"}
    for name, rest in VIEWS.items():
        module = _C.parse("graph net {\n"
                          '  %x = stream_in {stream="x"} : f32[2,3]\n'
                          f"  %0 = {name} %x {rest}\n"
                          "  output %0\n}\n")
        _C.run_passes(module, ["views"])
        assert " view %x " in module.text() and f" {name} " not in module.text(), name


def test_every_computing_row_has_a_kernel():
    """The engine itself runs the others."""
    without = {row["name"] for row in ROWS if not row["has_kernel"]}
    assert without <= {
        "all_gather", "all_reduce", "assign", "constant", "input", "ipu_copy", "loop",
        "reduce_scatter", "remote_load", "remote_store", "shard", "stash", "state", "strategy",
        "stream_in", "stream_out", "task", "tensor_location", "view",
    }


@pytest.mark.parametrize(
    ("op", "operands", "attrs", "words"),
    [
        ("state", [], {"path": "w"}, "op state has no type rule: its types must be given"),
        ("nothing_like_it", [], {}, 'there is no op "nothing_like_it"'),
        ("permute", [np.zeros(2, np.complex64)], {}, "no IR dtype for an array of complex64"),
        ("permute", [np.zeros(2)], {"dims": [0], "x": 1}, 'has no attribute "x"'),
        ("cat", [np.zeros(2), None], {}, r"operand number 1 is absent \(`_`\)"),
    ],
)
def test_mistakes(op, operands, attrs, words):
    with pytest.raises(Error, match=words):
        _C.evaluate(op, operands, attrs)


def test_an_op_without_kernel():
    with pytest.raises(Error, match=r"\[view\] has no kernel: %1 = view %0 : f32\[2\]"):
        _C.evaluate("view", [np.zeros(2, np.float32)], {}, types=[("f32", [2])])


def test_strides_are_respected():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (x.T, x[:, ::2], x[::-1], np.broadcast_to(x[0], (2, 4))):
        (result,) = _C.evaluate("contiguous", [view])
        assert np.array_equal(result, view)


def test_infer():
    assert _C.infer("permute", [("f32", [2, 3])], {"dims": [1, 0]}) == [("f32", [3, 2])]


@pytest.mark.parametrize(
    ("op", "operands", "attrs", "words"),
    [
        ("add", [("f32", [2, 3]), ("f32", [4])], {}, r"broadcast: \[2,3\] has 3 and \[4\] has"),
        ("add", [("f32", [2]), ("i32", [2])], {}, r"f32\[2\] and .*i32\[2\]"),
        ("cumsum", [("f32", [2])], {"dim": 1}, "dimension 1 is out of range for a tensor of 1 dim"),
        ("add", [("f32", [2])], {}, r"operand \"\w+\" \(number 1\) is missing: got 1 operands"),
    ],
)
def test_type_rules(op, operands, attrs, words):
    with pytest.raises(Error, match=words):
        _C.infer(op, operands, attrs)
