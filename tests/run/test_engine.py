"""The engine: states, errors while running, time stamps; what compile leaves behind."""

import time

import pytest
import torch

from poptorch import _C, Error
from tests.run.drive import Driver

COUNTER = """
graph main {
  loop {body=@iteration, count=4}
  output
}

graph iteration {
  %x = stream_in {stream="x"} : f32[3]
  %n = state {path="n", role="buffer"} : f32[3]
  %m = aten %n, %x {args=["%0", "%1"], overload="aten::add.Tensor"} : f32[3]  // net.py:3 count
  assign %m {path="n"}
  stream_out %m {stream="n"}
  output
}
"""


def test_states_live_from_call_to_call():
    driver = Driver(COUNTER)
    driver.write("n", [0.0, 10.0, 20.0])
    x = torch.ones(4, 3)
    assert driver(x=x)["n"].tolist() == [[i, 10 + i, 20 + i] for i in range(1, 5)]
    assert driver.read("n").tolist() == [4, 14, 24]
    driver(x=x)
    assert driver.read("n").tolist() == [8, 18, 28]
    state = driver.states["n"]
    assert (state.path, state.role, state.dtype, state.sizes, state.bytes) == (
        "n", "buffer", "f32", (3,), 12)


def test_cleared_states():
    driver = Driver(COUNTER, replicas=2, poison=True)
    driver.write("n", 1.0)
    driver.executable.clear_state("n")
    assert not driver.read("n", 0).any() and not driver.read("n", 1).any()


def test_bad_states():
    driver = Driver(COUNTER)
    with pytest.raises(Error, match='no state "m"'):
        driver.executable.clear_state("m")
    with pytest.raises(Error, match='no state "m"'):
        driver.executable.write_state("m", 0, 12)
    with pytest.raises(Error, match=r'"n" is f32\[3\] of 12 bytes, 8 were given'):
        driver.executable.read_state("n", 0, 8)


LAST = """
graph main {
  %w = state {layout="channels_last", path="w", role="parameter"} : f32[2,5,7,3]
  %0 = mul %w, %w : f32[2,5,7,3]
  assign %0 {path="w"}
  stream_out %w {stream="w"}
  output
}
"""


def test_states_with_channels_last():
    driver = Driver(LAST)
    w = torch.randn(2, 3, 5, 7)
    assert driver.states["w"].sizes == (2, 3, 5, 7)
    driver.write("w", w)
    assert torch.equal(driver.read("w"), w)
    assert torch.equal(driver()["w"][0], w.permute(0, 2, 3, 1))
    assert torch.equal(driver.read("w"), w * w)


def test_time_stamps():
    driver = Driver(COUNTER)
    before = time.monotonic_ns()
    driver(x=torch.ones(4, 3))
    after = time.monotonic_ns()
    times = [t for pair in driver.executable.timestamps() for t in pair]
    assert len(times) == 8
    assert [before, *times, after] == sorted([before, *times, after])


GATHER = """
graph main {
  loop {body=@iteration, count=2}
  output
}

graph iteration {
  %i = stream_in {stream="i"} : i32[2]
  %t = constant {data=[1.0, 2.0, 3.0]} : f32[3]
  %y = aten %t, %i {args=["%0", 0, "%1"], overload="aten::index_select"} : f32[2]  // net.py:9 pick
  stream_out %y {stream="y"}
  output
}
"""


def test_engine_runs_again_after_an_error():
    driver = Driver(GATHER)
    good = torch.tensor([[0, 1], [2, 2]])
    assert driver(i=good)["y"].tolist() == [[1, 2], [3, 3]]
    with pytest.raises(Error, match=r'(?s)index_select.*at net.py:9, module "pick", step run'):
        driver(i=torch.tensor([[0, 1], [2, 3]]))
    assert driver(i=good)["y"].tolist() == [[1, 2], [3, 3]]


def test_unknown_option():
    with pytest.raises(Error, match='unknown option "thread"'):
        _C.compile(_C.parse(COUNTER), {"thread": 1})
    with pytest.raises(Error, match="threads is 0 and replicas 1"):
        _C.compile(_C.parse(COUNTER), {"threads": 0})


def test_progress_and_texts():
    steps = []
    executable = _C.compile(_C.parse(COUNTER), {}, steps.append)
    assert steps == ["rewrite", "place", "lower", "schedule", "plan", "assemble"]
    assert set(executable.step_times()) == set(steps)
    assert "ipu=" not in executable.ir("rewrite")
    assert "ipu=0" in executable.ir("place") and "order=" not in executable.ir("lower")
    assert "order=3" in executable.ir("schedule") and "addr=" not in executable.ir("schedule")
    assert "addr=" in executable.ir("plan")
    with pytest.raises(Error, match='no IR text of step "run".*translate, rewrite, place'):
        executable.ir("run")


def test_dump(tmp_path):
    _C.compile(_C.parse(COUNTER), {"dump_folder": str(tmp_path)})
    names = sorted(path.name for path in tmp_path.iterdir())
    steps = ["3_rewrite"] * len(_C.pipeline("rewrite")) + ["5_lower"] * len(_C.pipeline("lower"))
    passes = [f"{step}.{i:02}_{name}.ir"
              for i, (step, name) in enumerate(zip(steps, _C.pipeline(), strict=True), 1)]
    assert names == sorted(["2_translate.ir", *passes, "3_rewrite.ir", "4_place.ir", "5_lower.ir",
                            "6_schedule.ir", "7_plan.ir"])
    assert (tmp_path / "3_rewrite.02_fold.ir").read_text() == "// (unchanged)\n"
