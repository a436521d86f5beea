"""Slices of host tensors: their order over iterations, replicas and micro-steps; output modes."""

import pytest
import torch

from poptorch import Error
from tests.run.drive import Driver

SIZES = (2, 3)


def program(iterations, accumulation, *, dtype="f32"):
    """Sends `x` flipped in each micro-step, and a running sum in each iteration."""
    kind = f"{dtype}[2,3]"
    return f"""
graph main {{
  loop {{body=@iteration, count={iterations}}}
  output
}}

graph iteration {{
  %hyper = stream_in {{repeat=true, stream="hyper"}} : {kind}
  %each = stream_in {{stream="each"}} : {kind}
  stream_out %hyper {{stream="hyper_out"}}
  stream_out %each {{stream="each_out"}}
  loop {{body=@micro, count={accumulation}}}
  output
}}

graph micro {{
  %x = stream_in {{stream="x"}} : {kind}
  %y = flip %x {{dims=[1]}} : {kind}
  stream_out %y {{stream="y"}}
  output
}}
"""


def inputs(iterations, accumulation, replicas, dtype=torch.float32):
    def draw(slices):
        return torch.randint(0, 9, (slices, *SIZES)).to(dtype)

    return {"hyper": draw(1), "each": draw(iterations * replicas),
            "x": draw(iterations * replicas * accumulation)}


@pytest.mark.parametrize("iterations", [1, 4])
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("replicas", [1, 2])
class TestModes:
    @pytest.fixture
    def driver(self, iterations, accumulation, replicas):
        return Driver(program(iterations, accumulation), replicas=replicas)

    @pytest.fixture
    def host(self, iterations, accumulation, replicas):
        return inputs(iterations, accumulation, replicas)

    @pytest.fixture
    def steps(self, host, iterations, accumulation, replicas):
        """What each step sends, as [iteration, replica, micro-step, ...]."""
        return host["x"].flip(2).reshape(iterations, replicas, accumulation, *SIZES)

    def test_all(self, driver, host):
        out = driver(**host)
        assert torch.equal(out["y"], host["x"].flip(2))
        assert torch.equal(out["each_out"], host["each"])
        assert torch.equal(out["hyper_out"], host["hyper"].expand_as(host["each"]))

    def test_final(self, driver, host, steps):
        driver.executable.set_output_mode("y", "final")
        driver.executable.set_output_mode("each_out", "final")
        out = driver(**host)
        assert torch.equal(out["y"], steps[-1, :, -1])
        assert torch.equal(out["each_out"], host["each"][-steps.shape[1]:])

    def test_sum(self, driver, host, steps):
        driver.executable.set_output_mode("y", "sum")
        out = driver(**host)
        assert torch.equal(out["y"], steps.sum((0, 2)))
        assert torch.equal(driver(**host)["y"], steps.sum((0, 2))), "the second call starts again"

    @pytest.mark.parametrize("period", [1, 2, 3])
    def test_every_n(self, driver, host, steps, period):
        driver.executable.set_output_mode("y", "every_n", period)
        out = driver(**host)
        kept = steps[period - 1::period][:len(steps) // period]
        assert torch.equal(out["y"], kept.flatten(0, 2))


@pytest.mark.parametrize("name, dtype", [("f16", torch.float16), ("bf16", torch.bfloat16),
                                         ("f64", torch.float64), ("i32", torch.int32),
                                         ("u8", torch.uint8), ("bool", torch.bool)])
def test_sum_of_each_dtype(name, dtype):
    driver = Driver(program(3, 2, dtype=name))
    driver.executable.set_output_mode("y", "sum")
    host = inputs(3, 2, 1, dtype)
    total = host["x"].flip(2)
    expected = total.any(0) if dtype is torch.bool else total.sum(0, dtype=dtype)
    assert torch.equal(driver(**host)["y"][0], expected)


def test_streams_are_described():
    driver = Driver(program(4, 3))
    found = [(s.name, s.is_input, s.dtype, s.sizes, s.repeat, s.slice_bytes)
             for s in driver.streams]
    assert found == [("each", True, "f32", SIZES, False, 24),
                     ("hyper", True, "f32", SIZES, True, 24),
                     ("x", True, "f32", SIZES, False, 24),
                     ("each_out", False, "f32", SIZES, False, 24),
                     ("hyper_out", False, "f32", SIZES, False, 24),
                     ("y", False, "f32", SIZES, False, 24)]
    slices = [driver.executable.host_slices(s.name) for s in driver.streams]
    assert slices == [4, 1, 12, 4, 4, 12]


@pytest.mark.parametrize("stream, mode, period, words", [
    ("x", "all", 1, "is an input"),
    ("nowhere", "all", 1, 'no stream "nowhere"'),
    ("y", "some", 1, 'unknown output mode "some"'),
    ("y", "every_n", 0, "period is 0"),
])
def test_bad_modes(stream, mode, period, words):
    driver = Driver(program(1, 1))
    with pytest.raises(Error, match=words):
        driver.executable.set_output_mode(stream, mode, period)


def test_number_of_pointers():
    driver = Driver(program(1, 1))
    with pytest.raises(Error, match="2 host tensors were given, the program has 6 streams"):
        driver.executable.run([0, 0], 1)
