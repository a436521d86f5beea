"""IR text: what is printed reads back to the same bytes; mistakes name line and column."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from poptorch import _C
from poptorch.errors import Error
from tests.helpers import run_python

EVERYTHING = """\
graph main {
  %x = stream_in {stream="x"} : f32[2,3]  // net.py:12 fc
  %s = state {path="fc.weight", role="parameter"} : f16[]
  %c = constant {data=[1.0, -0.0, 1e-45, inf, -inf, nan]} : f32[6]
  %i = constant {data=[1, -2]} : i64[2]
  %b = constant {data=[true, false]} : bool[2]
  %0 = view %x {offset=1} : f32[2,2](3,1)  // "my file.py":3 "a \\"b\\":c"
  %1, %2 = aten %x, _ {args=[[], [2.5], dtype:bf16, "\\n\\x01"], overload="a"} : f32[], i8[]
  %3 = loop %x {body=@body, count=4} : f32[2,3]  // :0 only.module
  stream_out %3 {stream="0"}
  output %3, %1
}

graph body {
  %0 = input {index=0} : f32[2,3]
  output %0
}
"""

attributes = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(),
        st.text(st.characters(codec="utf-8")),
        st.sampled_from([_C.DType("f32"), _C.DType("bool")]),
        st.just(_C.GraphRef("net.loop0")),
    ),
    lambda items: st.lists(items, max_size=3),
    max_leaves=6,
)


def test_round_trip_of_everything():
    module = _C.parse(EVERYTHING)
    assert module.text() == EVERYTHING
    assert [graph.name for graph in module.graphs] == ["main", "body"]


@given(attributes)
def test_round_trip_of_attributes(value):
    module = _C.Module()
    graph = module.add_graph("net")
    graph.op("aten", [], {"overload": "x", "args": [value]}, types=[("f32", [])])
    text = module.text()
    assert _C.parse(text).text() == text


@given(st.text(), st.integers(0, 2**31 - 1), st.text())
def test_round_trip_of_places(file, line, module_path):
    module = _C.Module()
    place = (file, line, module_path)
    module.add_graph("net").op("state", [], {"path": "w"}, types=[("f32", [])],
                                 source_location=place)
    text = module.text()
    assert _C.parse(text).text() == text


def test_comments_and_blank_lines_are_skipped():
    text = "// a case\n\ngraph net {\n\n  // nothing\n  output\n}\n// ----\n"
    assert _C.parse(text).text() == "graph net {\n  output\n}\n"


def test_names_are_unique_and_safe():
    graph = _C.Module().add_graph("net")
    names = [
        graph.op("state", [], {"path": str(i)}, types=[("f32", [])], names=[name])[0].name
        for i, name in enumerate(["x", "x", "a b", None, "1", None])
    ]
    assert names == ["x", "x.1", "a_b", "0", "1", "2"]


def test_large_constants_are_stored_by_content():
    module = _C.Module()
    graph = module.add_graph("net")
    data = np.arange(17, dtype=np.float32)
    first = graph.constant("f32", [17], data)
    graph.constant("f32", [17], data.copy())
    graph.constant("i32", [17], data)
    assert len(module.constants()) == 2
    assert first.type_text == "f32[17]"
    again = _C.parse(module.text(), module)
    assert again.text() == module.text()
    assert again.constants() == module.constants()


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i32"])
def test_constants_with_other_signs_are_others(dtype):
    """A hash in which the highest bits of two words cancel each other took them for one."""
    bits = {"f32": np.uint32, "f64": np.uint64, "bf16": np.uint16, "i32": np.uint32}[dtype]
    plain = np.arange(1, 33).astype(bits) << bits(8)
    sign = bits(1) << bits(8 * plain.itemsize - 1)
    for _ in range(200):
        module = _C.Module()
        flipped = plain.copy()
        first = np.random.randint(31)
        flipped[first:first + np.random.randint(1, 8)] ^= sign
        names = {module.add_constant(dtype, [32], data) for data in (plain, flipped)}
        assert len(names) == 2
        assert len(module.constants()) == 2


def test_floats_of_constants_are_short():
    module = _C.Module()
    module.add_graph("net").constant("f32", [2], np.array([0.1, 1e10], np.float32))
    assert "data=[0.1, 1e+10]" in module.text()


def test_constants_file(tmp_path):
    path = str(tmp_path / "net.safetensors")
    module = _C.Module()
    graph = module.add_graph("net")
    assert not module.save_constants(path)
    graph.constant("f32", [4, 5], np.arange(20, dtype=np.float32))
    graph.constant("bf16", [17], np.arange(17, dtype=np.uint16))
    assert module.save_constants(path)
    assert _C.load_constants(path).constants() == module.constants()
    content = bytearray((tmp_path / "net.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "net.safetensors").write_bytes(content)
    with pytest.raises(Error, match="was changed, it has hash"):
        _C.load_constants(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "has 0 bytes, its header says 0"),
        (b"\x02\0\0\0\0\0\0\0[]", "expected `{` at byte 8"),
        (b'\x0c\0\0\0\0\0\0\0{"a":{"b":1}', "unknown key b"),
        (b'\x14\0\0\0\0\0\0\0{"a":{"dtype":"F9"}}', "unknown dtype F9"),
        (b'\x04\0\0\0\0\0\0\0{"a"', "expected `:`"),
    ],
)
def test_broken_constants_files(tmp_path, content, words):
    path = tmp_path / "net.safetensors"
    path.write_bytes(content)
    with pytest.raises(Error, match=words):
        _C.load_constants(str(path))


def test_other_programs_read_the_constants_file(tmp_path):
    path = str(tmp_path / "net.safetensors")
    module = _C.Module()
    data = np.random.default_rng(0).normal(size=[4, 5]).astype(np.float32)
    module.add_graph("net").constant("f32", [4, 5], data)
    module.save_constants(path)
    (tensor,) = load_file(path).values()
    assert np.array_equal(tensor, data)


def test_missing_constants_file():
    with pytest.raises(Error, match="cannot read /nowhere"):
        _C.load_constants("/nowhere")


def line(text):
    return f"graph net {{\n  %x = state {{path=\"w\"}} : f32[2,2]\n{text}\n  output\n}}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1, column 1: expected `graph`, found the end of the text"),
        ("graph net {", "line 1, column 12: expected the name of an op, or `output`"),
        ("graph net {\n output\n", "expected `}`, found the end of the text"),
        ("graph a {\noutput\n}\ngraph a {\noutput\n}", "line 4, column 7: .*a graph of this one"),
        (line("  %x = neg %x : f32[]"), "line 3, column 4: .*there is a value of this one already"),
        (line("  %1 = neg %y : f32[]"), "line 3, column 13: expected a value that is"),
        (line("  %1 = neg %x"), "column 14: expected `:`, found the end of the line"),
        (line("  %1 = neg %x : f33[]"), "expected a dtype, for instance f32, found `f33"),
        (line("  %1 = neg %x : f32[a]"), "expected a number"),
        (line("  %1 = neg %x : f32[1.5]"), "expected an integer"),
        (line("  %1 = neg %x : f32[2,2](1)"), "expected 2 strides"),
        (line("  %1 = neg %x : f32[2,2](2,1)"), "expected no strides"),
        (line("  %1 = neg %x : f32[], f32[]"), "expected 1 types"),
        (line("  %1, %2 = neg %x : f32[]"), "expected 2 types"),
        (line("  %1 = neg %x {a=} : f32[]"), "expected an attribute: none, true"),
        (line("  %1 = neg %x {a=1, a=2} : f32[]"), "an attribute of this one already"),
        (line('  %1 = neg %x {a="b} : f32[]'), "expected `\"`"),
        (line(r'  %1 = neg %x {a="\z"} : f32[]'), "expected one of"),
        (line(r'  %1 = neg %x {a="\x0"} : f32[]'), "two hexadecimal digits"),
        (line("  %1 = neg %x : f32[] junk"), "expected the end of the line, found `junk`"),
        (line("  %1 = neg %x {a=9223372036854775808} : f32[]"), "an integer of 64 bits"),
    ],
)
def test_syntax_errors(text, words):
    with pytest.raises(Error, match=words):
        _C.parse(text)


def test_a_syntax_error_shows_the_line():
    with pytest.raises(Error) as error:
        _C.parse(line("  %1 = neg %y : f32[]"))
    assert str(error.value).endswith("Correct this line:\n    %1 = neg %y : f32[]")


def nested(lists):
    """A text with lists one in the other."""
    return line(f"  %1 = full {{dtype=dtype:f32, size={'[' * lists}{']' * lists}}} : f32[]")


def test_lists_in_lists_have_a_limit():
    _C.parse(nested(64))
    with pytest.raises(Error, match=r"expected no list within 64 others, found `\[\]"):
        _C.parse(nested(65))


@pytest.mark.sampled
@pytest.mark.parametrize("end", ["", "]"])
def test_a_million_brackets_are_an_error(end):
    out = run_python(f"""
import poptorch
lists = "[" * 10**6 + {end!r} * 10**6
try:
    poptorch._C.parse("graph g {{\\n  %x = full {{size=" + lists)
except poptorch.Error as error:
    print(len(str(error)), error)
""")
    length, _, message = out.partition(" ")
    assert message.startswith("[ir text] line 2, column 83: expected no list within 64 others")
    assert int(length) < 2000
