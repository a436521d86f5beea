"""The graph `preprocess` runs once after the host has written a state that it reads."""

import pytest
import torch
from torch import nn

import poptorch
from poptorch import _C
from tests.run.drive import Driver

TEXT = """
graph main {
  loop {body=@iteration, count=2}
  output
}

graph iteration {
  %w = state {path="w", role="parameter"} : f32[3]
  %count = state {path="count"} : f32[3]
  %x = stream_in {stream="x"} : f32[3]
  %0 = exp %w : f32[3]
  %1 = relu %0 : f32[3]
  %2 = mul %x, %1 : f32[3]
  %3 = add %count, %1 : f32[3]
  assign %3 {path="count"}
  stream_out %2 {stream="y"}
  output
}
"""
PREPARING = """
graph main {
  %p = state {path="p", role="preprocessed"} : f32[3]
  stream_out %p {stream="y"}
  output
}

graph preprocess {
  %w = state {path="w"} : f32[3]
  %0 = exp %w : f32[3]
  assign %0 {path="p"}
  output
}
"""


def runs_of_exp(driver):
    return sum(row["runs"] for row in driver.executable.profile() if "exp" in row["op"])


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("poison", [False, True])
def test_preprocessed_values_follow_the_states(replicas, poison):
    driver = Driver(TEXT, replicas=replicas, poison=poison, reload_ir=True)
    assert set(driver.states) == {"w", "count"}
    x = torch.randn(2 * replicas, 3)
    for value in (0.5, -1.0):
        w = torch.full((3,), value)
        driver.write("w", w)
        driver.write("count", torch.zeros(3))
        for _ in range(2):
            torch.testing.assert_close(driver(x=x)["y"], x * w.exp())
        torch.testing.assert_close(driver.read("count"), 4 * w.exp())


def test_it_runs_once_for_each_write():
    driver = Driver(TEXT)
    driver.executable.set_profiling(True)
    for writes in (1, 2, 3):
        driver.write("w", torch.randn(3))
        for _ in range(3):
            driver.write("count", torch.zeros(3))  # preprocess does not read it
            driver(x=torch.randn(2, 3))
        assert runs_of_exp(driver) == writes


def test_without_the_pass_it_runs_in_every_iteration():
    driver = Driver(TEXT, pass_limit=0)
    driver.executable.set_profiling(True)
    driver(x=torch.randn(2, 3))
    assert runs_of_exp(driver) == 2


@pytest.mark.parametrize(("line", "words"), [
    ('%w = state {path="p"} : f32[3]', "read by preprocess and assigned"),
    ('%w = stream_in {stream="x"} : f32[3]', "it may only compute and assign"),
])
def test_what_prepare_must_not_do(line, words):
    text = PREPARING.replace('%w = state {path="w"} : f32[3]', line)
    with pytest.raises(RuntimeError, match=words):
        _C.compile(_C.parse(text), {})


def test_a_preprocessed_state_is_not_assigned_elsewhere():
    text = PREPARING.replace('  stream_out %p', '  assign %p {path="p"}\n  stream_out %p')
    with pytest.raises(RuntimeError, match="is assigned elsewhere, too"):
        _C.compile(_C.parse(text), {})


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * torch.tanh(self.scale)


def test_weights_that_the_user_changes_are_seen_by_the_next_call():
    model = Scaled()
    options = poptorch.Options().showCompilationProgressBar(False)
    compiled = poptorch.inferenceModel(model, options)
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), model(x).detach())
    assert "graph preprocess" in compiled.ir()
    with torch.no_grad():
        model.scale.mul_(-0.5)
    compiled.copyWeightsToDevice()
    torch.testing.assert_close(compiled(x), model(x).detach())
    compiled.load_state_dict({"scale": torch.ones(4)})
    torch.testing.assert_close(compiled(x), x * torch.tanh(torch.ones(4)))
