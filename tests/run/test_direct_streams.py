"""Streams without copies: kernels use the host's memory, and never write to an input."""

import pytest
import torch

from tests.run.drive import Driver

# %x is read by an op that may take its memory, through a view, and returned as it is; %y is
# returned and read again; %z goes into a state and out.
PROGRAM = """
graph main {
  loop {body=@iteration, count=3}
  output
}

graph iteration {
  %x = stream_in {stream="x"} : f32[4,6]
  %n = state {path="n", role="buffer"} : f32[4,6]
  %y = relu %x : f32[4,6]
  %v = view %y : f32[6,4](1,6)
  %w = contiguous %v : f32[6,4]
  %z = add %n, %y : f32[4,6]
  assign %z {path="n"}
  %flat = reshape %w {size=[24]} : f32[24]
  stream_out %x {stream="x_out"}
  stream_out %y {stream="y"}
  stream_out %flat {stream="w"}
  stream_out %z {stream="z"}
  output
}
"""


def expected(x):
    y = x.relu()
    return {"x_out": x, "y": y, "w": y.transpose(1, 2).flatten(1), "z": y.cumsum(0)}


@pytest.mark.parametrize("poison", [False, True])
@pytest.mark.parametrize("off", ["", "direct_streams"])
def test_values(off, poison, monkeypatch):
    monkeypatch.setenv("POPTORCH_OFF", off)
    driver = Driver(PROGRAM, poison=poison)
    driver.write("n", 0.0)
    x = torch.randint(-9, 9, (3, 4, 6)).float()
    kept = x.clone()
    out = driver(x=x)
    assert torch.equal(x, kept)
    for name, tensor in expected(x).items():
        assert torch.equal(out[name], tensor), name


@pytest.mark.parametrize("mode, slices", [("final", [2]), ("every_n", [1]), ("sum", None)])
def test_output_modes(mode, slices):
    driver = Driver(PROGRAM)
    driver.write("n", 0.0)
    for name in ("x_out", "y", "w", "z"):
        driver.executable.set_output_mode(name, mode, 2)
    x = torch.randint(-9, 9, (3, 4, 6)).float()
    out = driver(x=x)
    for name, tensor in expected(x).items():
        wanted = tensor[slices] if slices else tensor.cumsum(0)[-1:]
        assert torch.equal(out[name], wanted), name


@pytest.mark.parametrize("off", ["", "direct_streams"])
def test_memory_is_the_hosts(off, monkeypatch):
    """One tensor is given for the input and an output: what reads the input later tells."""
    monkeypatch.setenv("POPTORCH_OFF", off)
    driver = Driver("""
graph main {
  %x = stream_in {stream="x"} : f32[4]
  %y = exp %x : f32[4]
  %z = add %x, %y : f32[4]
  stream_out %y {stream="y"}
  stream_out %z {stream="z"}
  output
}
""")
    x, z = torch.zeros(1, 4), torch.zeros(1, 4)
    driver.executable.run([x.data_ptr(), x.data_ptr(), z.data_ptr()], 1)
    assert z.tolist() == [[1.0 if off else 2.0] * 4]
