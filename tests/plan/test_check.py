"""The check of plans refuses what would compute wrong numbers, and names the values."""

import re

import pytest
import torch

from poptorch import _C
from tests.run.drive import Driver

PROGRAM = """
graph main {
  loop {body=@iteration, count=2}
  output
}

graph iteration {
  %x = stream_in {stream="x"} : f32[64,64]
  %a = flip %x {dims=[0]} : f32[64,64]
  %b = flip %a {dims=[1]} : f32[64,64]
  %d = flip %a {dims=[0]} : f32[64,64]
  stream_out %d {stream="d"}
  %n = state {path="n"} : f32[64,64]
  %m = flip %n {dims=[0]} : f32[64,64]
  assign %m {path="n"}
  %part = view %b {offset=64} : f32[1,64]
  %c = slice_scatter %b, %part {dim=0, end=1, start=0} : f32[64,64]
  stream_out %c {stream="c"}
  %one = constant {data=[1.0]} : f32[1]
  stream_out %one {stream="one"}
  %r = tril %x : f32[64,64]
  %last = loop %r {body=@body, count=2} : f32[64,64]
  %row = stream_in {stream="row"} : f32[1,64]
  %s = slice_scatter %last, %row {dim=0, end=1, start=0} : f32[64,64]
  stream_out %s {stream="s"}
  output
}

graph body {
  %v = input {index=0} : f32[64,64]
  %w = tril %v : f32[64,64]
  output %w
}
"""


@pytest.fixture(scope="module")
def planned():
    module = _C.parse(PROGRAM)
    for step in (_C.place, _C.schedule, _C.plan):
        step(module)
    _C.check_plan(module)
    return module.text()


def line_of(text, start):
    return next(line for line in text.splitlines() if line.strip().startswith(start))


def addr(text, start):
    return int(re.search(r"addr=(\d+)", line_of(text, start)).group(1))


def with_addr(text, start, new):
    old = line_of(text, start)
    return text.replace(old, re.sub(r"addr=\d+", f"addr={new}", old))


def refuse(text, *words):
    with pytest.raises(RuntimeError) as caught:
        _C.check_plan(_C.parse(text))
    for word in words:
        assert word in str(caught.value)


def test_two_live_values_at_one_address(planned):
    wrong = with_addr(planned, "%b = flip", addr(planned, "%a = flip"))
    wrong = with_addr(wrong, "%part = view", addr(wrong, "%b = flip") + 256)
    refuse(wrong, "%a at", "%b at", "share memory")


def test_partial_overlap(planned):
    wrong = with_addr(planned, "%b = flip", addr(planned, "%a = flip") + 64)
    wrong = with_addr(wrong, "%part = view", addr(wrong, "%b = flip") + 256)
    refuse(wrong, "%a at", "%b at")


def test_wrong_plan_gives_wrong_numbers_when_nobody_checks(planned):
    wrong = with_addr(planned, "%b = flip", addr(planned, "%a = flip"))
    wrong = with_addr(wrong, "%part = view", addr(wrong, "%b = flip") + 256)
    with pytest.raises(RuntimeError, match="share memory"):
        Driver(wrong, planned=True)
    x, row = torch.randn(2, 64, 64), torch.randn(2, 1, 64)
    good, bad = Driver(planned, planned=True), Driver(wrong, planned=True, check_plan=False)
    for driver in (good, bad):
        driver.write("n", torch.zeros(64, 64))
    assert torch.equal(good(x=x, row=row)["d"], x)
    assert not torch.equal(bad(x=x, row=row)["d"], x)


def test_value_on_a_state(planned):
    refuse(with_addr(planned, "%a = flip", addr(planned, "%n = state")), "%a at", 'state "n"')


def test_value_on_a_constant(planned):
    refuse(with_addr(planned, "%a = flip", addr(planned, "%one = constant")), "%a at", "%one at")


def test_scratch_on_a_value(planned):
    line = line_of(planned, "%b = flip")
    at = addr(planned, "%a = flip")
    marked = line.replace("{", f"{{scratch_addr={at}, scratch_bytes=64, ")
    refuse(planned.replace(line, marked), "%a at", "scratch memory of")


def test_in_place_of_a_value_that_is_read_later(planned):
    line = line_of(planned, "%b = flip")
    taken = re.sub(r"addr=\d+", f"addr={addr(planned, '%a = flip')}, inplace=[0]", line)
    wrong = planned.replace(line, taken)
    wrong = with_addr(wrong, "%part = view", addr(planned, "%a = flip") + 256)
    refuse(wrong, "%a at", "%b at")


def test_in_place_elsewhere(planned):
    assert "inplace=[0]" in line_of(planned, "%s = slice_scatter")
    wrong = with_addr(planned, "%s = slice_scatter", 1 << 20)
    refuse(wrong, "%s", "in place of operand 0, which is elsewhere")


def test_loop_carries_at_two_addresses(planned):
    wrong = with_addr(planned, "%v = input", addr(planned, "%v = input") + (1 << 20))
    refuse(wrong, "%r at", "%v at", "around")


def test_view_elsewhere(planned):
    refuse(with_addr(planned, "%part = view", 0), "%part = view", "256 bytes behind %b")


def test_state_at_two_addresses(planned):
    refuse(with_addr(planned, "assign %m", 1 << 20), 'state "n"')


def test_unaligned(planned):
    refuse(with_addr(planned, "%a = flip", (1 << 20) + 4), "%a at", "multiple of 64")


def test_outside(planned):
    refuse(with_addr(planned, "%a = flip", -64), "%a")


@pytest.mark.parametrize("scratch_bytes", [-64, 2**63 - 1])
def test_scratch_without_an_end(planned, scratch_bytes):
    line = line_of(planned, "%b = flip")
    marked = line.replace("{", f"{{scratch_addr=1048576, scratch_bytes={scratch_bytes}, ")
    refuse(planned.replace(line, marked), "scratch memory of",
           f"{scratch_bytes} bytes at 1048576, is outside the arena")


def test_empty_value_outside(planned):
    line = line_of(planned, "%a = flip")
    empty = f"{line}\n  %e = constant {{addr=-64, data=[], ipu=0, order=0, stage=0}} : f32[0]"
    refuse(planned.replace(line, empty), "%e, 0 bytes at -64")


def plan_of(text):
    module = _C.parse(text)
    for step in (_C.place, _C.schedule, _C.plan):
        step(module)
    _C.check_plan(module)
    return module.text()


def test_in_place_of_what_another_operand_reads():
    text = plan_of("""
graph main {
  %x = stream_in {stream="x"} : f32[64,64]
  %a = flip %x {dims=[0]} : f32[64,64]
  %t = view %a : f32[64,64](1,64)
  %s = add %a, %t : f32[64,64]
  stream_out %s {stream="s"}
  output
}
""")
    line = line_of(text, "%s = add")
    assert "inplace" not in line
    taken = re.sub(r"addr=\d+", f"addr={addr(text, '%a = flip')}, inplace=[0]", line)
    wrong = text.replace(line, taken)
    refuse(wrong, "%s = add", "in place of operand 0", "the same memory as operand 1")
    x = torch.randn(64, 64)
    expected = x.flip(0) + x.flip(0).T
    assert torch.equal(Driver(text, planned=True)(x=x)["s"][0], expected)


def test_state_under_what_prepare_computes():
    text = plan_of("""
graph preprocess {
  %w = state {path="w"} : f32[64]
  %p = flip %w {dims=[0]} : f32[64]
  %q = flip %p {dims=[0]} : f32[64]
  assign %q {path="q"}
  output
}

graph main {
  %x = stream_in {stream="x"} : f32[64]
  assign %x {path="n"}
  %q = state {path="q"} : f32[64]
  stream_out %q {stream="s"}
  output
}
""")
    state = addr(text, 'assign %x')
    refuse(with_addr(text, "%p = flip", state), "%p at", 'state "n"')
