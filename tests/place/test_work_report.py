"""The work of whole programs, from their text."""

import pytest

from poptorch import _C
from poptorch.errors import Error


def counted(text):
    """What ``_C.work_report`` says of a placed text: ``{phase: {op: (flops, bytes, count)}}``."""
    return {phase: {op: tuple(row[key] for key in ("flops", "bytes", "count"))
                    for op, row in ops.items()}
            for phase, ops in _C.work_report(text).items()}


def test_ops_are_summed_by_phase_and_name():
    assert counted("""
graph main {
  %x = stream_in {stream="x"} : f32[4]
  %a = relu %x : f32[4]
  %b = relu %a : f32[4]
  %c = relu %b {part="backward"} : f32[4]
  %s = state {path="s"} : f32[4]
  %d = accumulate %s, %c {part="update"} : f32[4]
  assign %d {path="s"}
  stream_out %c {stream="y"}
  output
}
""") == {"forward": {"relu": (8, 64, 2)}, "backward": {"relu": (4, 32, 1)},
         "update": {"accumulate": (8, 48, 1)}}


def test_loops_count_as_often_as_they_run():
    assert counted("""
graph main {
  %x = stream_in {stream="x"} : f32[4]
  %0 = loop %x {body=@outer, count=5} : f32[4]
  stream_out %0 {stream="y"}
  output
}

graph outer {
  %x = input {index=0} : f32[4]
  %0 = exp %x : f32[4]
  %1 = loop %0 {body=@inner, count=3} : f32[4]
  output %1
}

graph inner {
  %x = input {index=0} : f32[4]
  %0 = relu %x : f32[4]
  output %0
}
""") == {"forward": {"exp": (20, 160, 5), "relu": (60, 480, 15)}}


def test_what_a_tensor_decides_is_not_counted():
    assert counted("""
graph main {
  %c = stream_in {stream="c"} : bool[]
  %x = stream_in {stream="x"} : f32[4]
  %0, %1 = loop %c, %x {body=@body, conditional=true, count=1} : bool[], f32[4]
  %2 = relu %1 : f32[4]
  stream_out %2 {stream="y"}
  output
}

graph body {
  %c = input {index=0} : bool[]
  %x = input {index=1} : f32[4]
  %0 = exp %x : f32[4]
  output %c, %0
}
""") == {"forward": {"loop": (None, None, 1), "relu": (4, 32, 1)}}


def test_opaque_ops_have_no_flops_but_bytes():
    assert counted("""
graph main {
  %x = stream_in {stream="x"} : f32[4]
  %0 = aten %x {args=["%0"], overload="aten::erfinv"} : f32[4]
  %1 = aten %0 {args=["%0"], overload="aten::erfinv"} : f32[4]
  stream_out %1 {stream="y"}
  output
}
""") == {"forward": {"aten::erfinv": (None, 64, 2)}}


def test_views_are_read_as_what_they_show():
    assert counted("""
graph main {
  %x = stream_in {stream="x"} : f32[1,4]
  %0 = expand %x {size=[8, 4]} : f32[8,4]
  %1 = permute %0 {dims=[1, 0]} : f32[4,8]
  %2 = exp %1 : f32[4,8]
  %3 = slice %2 {dim=0, end=1, start=0} : f32[1,8]
  %4 = mul %3, %3 : f32[1,8]
  stream_out %4 {stream="y"}
  output
}
""") == {"forward": {"exp": (32, 16 + 128, 1), "mul": (8, 32 + 32, 1)}}


def test_only_the_types_of_constants_matter():
    assert counted("""
graph main {
  %c = constant {hash="0123456789abcdef"} : f32[100]
  %0 = relu %c : f32[100]
  stream_out %0 {stream="y"}
  output
}
""") == {"forward": {"relu": (100, 800, 1)}}


@pytest.mark.parametrize(("text", "words"), [
    ("graph other {\n  output\n}\n", "main"),
    ("graph main {\n  %0 = relu : f32[4]\n  output\n}\n", 'operand "self"'),
    ("graph main {\n  loop {body=@main, count=2}\n  output\n}\n", "@main"),
])
def test_a_text_that_breaks_a_rule(text, words):
    with pytest.raises(Error, match=words) as caught:
        _C.work_report(text)
    assert "Please report" not in str(caught.value)
