"""Profiles: how often each op ran, and for how long."""

import torch

from tests.run.drive import Driver

PROGRAM = """
graph main {
  loop {body=@iteration, count=3}
  output
}

graph iteration {
  %x = stream_in {stream="x"} : f32[64,64]
  %0 = relu %x : f32[64,64]  // net.py:3 act
  %1 = aten %0 {args=["%0"], overload="aten::erfinv"} : f32[64,64]
  stream_out %1 {stream="y"}
  output
}
"""


def test_each_op_is_counted():
    driver = Driver(PROGRAM)
    x = torch.rand(3, 64, 64)
    driver(x=x)
    assert driver.executable.profile() == []
    driver.executable.set_profiling(True)
    driver(x=x)
    driver(x=x)
    rows = {row["op"]: row for row in driver.executable.profile()}
    assert rows["relu"]["runs"] == 6 and rows["relu"]["ns"] > 0
    assert rows["relu"]["types"] == "f32[64,64] -> f32[64,64]"
    assert rows["relu"]["place"] == 'net.py:3, module "act"'
    assert rows["relu"]["phase"] == "forward"
    assert rows["relu"]["flops"] == 64 * 64 and rows["relu"]["bytes"] == 2 * 4 * 64 * 64
    assert rows["aten::erfinv"]["flops"] is None
    assert set(rows) == {"relu", "aten::erfinv", "stream_in", "stream_out"}  # not the loop


def test_a_stopped_profile_keeps_its_counts():
    driver = Driver(PROGRAM)
    driver.executable.set_profiling(True)
    driver(x=torch.rand(3, 64, 64))
    before = driver.executable.profile()
    driver.executable.set_profiling(False)
    driver(x=torch.rand(3, 64, 64))
    assert driver.executable.profile() == before != []
    driver.executable.set_profiling(True)
    assert driver.executable.profile() == []
