"""Building modules from Python, as translate does, and what it says about mistakes."""

import gc

import numpy as np
import pytest

from poptorch import _C
from poptorch.errors import Error


@pytest.fixture
def graph():
    return _C.Module().add_graph("net")


@pytest.fixture
def x(graph):
    return graph.op("stream_in", [], {"stream": "x"}, types=[("f32", [2, 3])], names=["x"])[0]


def test_types_are_inferred(graph, x):
    (y,) = graph.op("permute", [x], {"dims": [1, 0]})
    assert (y.name, y.dtype, y.sizes, y.type_text) == ("0", "f32", [3, 2], "f32[3,2]")
    assert (y.op, repr(y)) == ("permute", "%0 : f32[3,2]")


def test_attributes_take_their_shortest_form(graph, x):
    graph.op("slice", [x], {"dim": 0, "start": None, "end": 1, "step": 1})
    assert "slice %x {end=1} : f32[1,3]" in graph.text()


def test_outputs(graph, x):
    graph.outputs = [x, x]
    assert graph.outputs == [x, x]
    assert graph.text().endswith("  output %x, %x\n}\n")


def test_values_keep_the_module_alive():
    value = _C.Module().add_graph("net").op("state", [], {"path": "w"}, types=[("f32", [])])[0]
    gc.collect()
    assert value.type_text == "f32[]"


def test_values_are_equal_and_hashable(graph, x):
    assert graph.op("contiguous", [x])[0] != x
    assert len({x, x}) == 1 and x != "x"


def test_values_of_another_graph_are_refused(graph, x):
    other = _C.Module().add_graph("other")
    with pytest.raises(Error, match="value %x is of graph @net, it is used in @other"):
        other.op("contiguous", [x])


def test_a_graph_by_name():
    module = _C.Module()
    module.add_graph("a")
    assert module.graph("a").name == "a" and len(module.graph("a")) == 0
    with pytest.raises(Error, match=r"there is no graph @b. The module has: @a."):
        module.graph("b")
    with pytest.raises(Error, match="the module has a graph @a already"):
        module.add_graph("a")


@pytest.mark.parametrize(
    ("op", "attrs", "words"),
    [
        ("permut", {}, 'there is no op "permut". Did you mean permute'),
        ("qqqqqq", {}, r"`python -m poptorch ops` lists all \d+"),
        ("permute", {}, 'attribute "dims" is missing. Give a list'),
        ("permute", {"dims": 1}, 'attribute "dims" is 1, an int. Give a list'),
        ("permute", {"dims": [0, 1], "a": 1}, 'has no attribute "a". Its attributes: dims'),
        ("permute", {"dims": [0, 2**64]}, "attribute 18446744073709551616 does not fit 64 bits"),
        ("permute", {"dims": {}}, "an attribute cannot be {} of <class 'dict'>. Use None, bool"),
    ],
)
def test_mistakes(graph, x, op, attrs, words):
    with pytest.raises(Error, match=words):
        graph.op(op, [x], attrs)


def test_errors_of_type_rules_name_the_source(graph, x):
    with pytest.raises(Error) as error:
        graph.op("permute", [x], {"dims": [0]}, source_location=("net.py", 12, "fc"))
    assert str(error.value).endswith('\n  at net.py:12, module "fc"')
    with pytest.raises(Error) as error:
        graph.op("permute", [x], {"dims": [0]}, source_location=("", 0, "fc"))
    assert str(error.value).endswith('\n  in module "fc"')


@pytest.mark.parametrize(
    ("dtype", "sizes", "data", "words"),
    [
        ("f33", [1], b"1234", 'unknown dtype "f33". Use one of: bool u8'),
        ("f32", [2], b"1234", r"the data has 4 bytes, f32\[2\] has 8"),
        ("f32", [2, 2], np.zeros([2, 2], np.float32).T[:1].T, "is not row-major"),
    ],
)
def test_bad_constants(graph, dtype, sizes, data, words):
    with pytest.raises(Error, match=words):
        graph.constant(dtype, sizes, data)


def test_dtypes():
    assert _C.DType("f32") == _C.DType("f32") != _C.DType("f16")
    assert (_C.DType("bf16").item_bytes, repr(_C.DType("bf16"))) == (2, "DType('bf16')")


def test_lists_in_lists_have_a_limit(graph):
    items = []
    items.append(items)
    with pytest.raises(Error, match="an attribute has more than 64 lists one in the other"):
        graph.op("full", [], {"size": items}, types=[("f32", [])])
