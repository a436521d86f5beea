"""From planned text to instructions: what runs, what is refused, what is counted."""

import re

import numpy as np
import pytest
import torch

from poptorch import _C, Error
from tests.helpers import in_parts
from tests.run.drive import Driver

SORTED = """
graph main {
  %x = stream_in {stream="x"} : f32[64]
  %y, %i = aten %x {args=["%0", 0, false], overload="aten::sort"} : f32[64], i32[64]
  stream_out %y {stream="y"}
  stream_out %i {stream="i"}
  output
}
"""


def planned(text):
    module = _C.parse(text)
    for step in (_C.place, _C.schedule, _C.plan):
        step(module)
    return module


def test_several_results_and_scratch():
    text = planned(SORTED).text()
    assert "addr=[" in text and "scratch_addr=" in text
    x = torch.randn(64)
    out = Driver(text, planned=True)(x=x)
    values, indices = x.sort()
    assert torch.equal(out["y"][0], values)
    assert torch.equal(out["i"][0].long(), indices)


@pytest.mark.parametrize("less", ["scratch_bytes=64", "scratch_bytes=0"])
def test_less_scratch_than_the_kernel_needs_here(less):
    text = planned(SORTED).text()
    arena = _C.memory_report(_C.parse(text))["arena"]
    x = torch.randn(64)
    driver = Driver(re.sub(r"scratch_bytes=\d+", less, text), planned=True)
    out = driver(x=x)
    assert torch.equal(out["y"][0], x.sort()[0])
    assert torch.equal(out["i"][0].long(), x.sort()[1])
    assert f"scratch_addr={arena}" in driver.executable.ir("plan")  # behind all that was planned


def test_main_without_loops_runs_once():
    driver = Driver(SORTED)
    driver(x=torch.randn(64))
    assert driver.executable.device_iterations == 1
    assert len(driver.executable.timestamps()) == 1


LOOPS = """
graph main {
  %%z = full {dtype=dtype:f32, fill_value=0.0, size=[1]} : f32[1]
  %%s = loop %%z {body=@%(outer)s, count=3} : f32[1]
  output
}

graph %(outer)s {
  %%a = input {index=0} : f32[1]
  %%b = loop %%a {body=@%(inner)s, count=2} : f32[1]
  stream_out %%b {stream="sum"}
  output %%b
}

graph %(inner)s {
  %%c = input {index=0} : f32[1]
  %%x = stream_in {stream="x"} : f32[1]
  %%d = add %%c, %%x : f32[1]
  output %%d
}
"""


@pytest.mark.parametrize("names", [("iteration", "micro"), ("micro", "iteration"), ("a", "b")])
def test_the_loop_in_main_is_that_over_device_iterations(names):
    driver = Driver(LOOPS % dict(zip(("outer", "inner"), names, strict=True)))
    assert driver.executable.device_iterations == 3
    assert len(driver.executable.timestamps()) == 3
    assert driver.executable.host_slices("x") == 6
    out = driver(x=torch.arange(6.0).reshape(6, 1))
    assert out["sum"].flatten().tolist() == [1, 6, 15]


def test_two_loops_in_main():
    text = LOOPS % {"outer": "a", "inner": "b"} + """
graph c {
  %a = input {index=0} : f32[1]
  %b = add %a, %a : f32[1]
  output %b
}
"""
    second = """%t = loop %s {body=@c, count=4} : f32[1]
  stream_out %t {stream="result"}
  output
"""
    driver = Driver(text.replace("output\n", second, 1))
    assert driver.executable.device_iterations == 1
    out = driver(x=torch.ones(6, 1))
    assert out["sum"].flatten().tolist() == [2, 4, 6]
    assert out["result"].item() == 6 * 2**4


def test_an_update_of_a_part_is_no_update_of_weights():
    text = """
graph main {
  %x = stream_in {stream="x"} : f32[4]
  %y = stream_in {stream="y"} : f32[2]
  %i = stream_in {stream="i"} : i32[1]
  %z = dynamic_update %x, %y, %i {dim=0, size=2} : f32[4]
  stream_out %z {stream="z"}
  output
}
"""
    assert Driver(in_parts(text)).executable.op_report() == {"forward": {"dynamic_update": 1}}


def test_ops_without_kernel():
    text = """
graph main {
  %x = stream_in {stream="x"} : f32[4]
  %g = sgd_update %x : f32[4]
  %h = adam_update %g : f32[4]
  stream_out %h {stream="y"}
  output
}
""".replace("sgd_update", "no_such_op").replace("adam_update", "nor_this_one")
    text = planned(text).text()
    with pytest.raises(RuntimeError, match="no such op"):
        Driver(text, planned=True)


def test_broken_module_asks_for_a_report():
    """No user can write one: a step of ours did."""
    text = """
graph main {
  %x = stream_in {stream="x"} : f32[4]
  %y = relu %x : f32[5]
  stream_out %y {stream="y"}
  output
}
"""
    with pytest.raises(Error, match=r"(?s)\[verify\] graph @main, op `%y = .*declared f32\[5\].*\n"
                                    r"Please report this with the dump of POPTORCH_DUMP_IR\.$"):
        Driver(text)


def test_large_constants_are_found():
    module = _C.parse('graph main {\n  output\n}\n')
    data = np.arange(100, dtype=np.float32)
    name = module.add_constant("f32", [100], data)
    text = f"""
graph main {{
  %c = constant {{hash="{name}"}} : f32[100]
  stream_out %c {{stream="y"}}
  output
}}
"""
    holder = _C.parse(text, module)
    for step in (_C.place, _C.schedule, _C.plan):
        step(holder)
    executable = _C.assemble_text(holder.text(), {}, holder)
    out = torch.empty(100)
    executable.run([out.data_ptr()], 1)
    assert torch.equal(out, torch.arange(100.0))


def test_op_report():
    text = """
graph main {
  loop {body=@iteration, count=1}
  output
}

graph iteration {
  %x = stream_in {stream="x"} : f32[4]
  %a = flip %x {dims=[0]} : f32[4]
  %b = aten %a {args=["%0"], overload="aten::erfinv"} : f32[4]
  %c = flip %b {dims=[0], part="backward"} : f32[4]
  %s = state {path="s"} : f32[4]
  %d = accumulate %s, %c {part="update"} : f32[4]
  assign %d {part="update", path="s"}
  stream_out %c {stream="y"}
  output
}
"""
    assert Driver(in_parts(text)).executable.op_report() == {
        "forward": {"aten::erfinv": 1, "flip": 1}, "backward": {"flip": 1},
        "update": {"accumulate": 1}}


def test_one_stream_used_in_two_ways():
    text = """
graph main {
  %x = stream_in {stream="x"} : f32[4]
  %y = stream_in {stream="x"} : f32[5]
  stream_out %x {stream="a"}
  stream_out %y {stream="b"}
  output
}
"""
    with pytest.raises(RuntimeError, match='stream "x" is used in two ways'):
        Driver(text)


def test_error_kind():
    with pytest.raises(Error):
        Driver(SORTED.replace("aten::sort", "aten::no_such_thing"))
