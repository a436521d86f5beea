"""Algorithms that are chosen by measuring: what is chosen, what is kept, and what reports say."""

import concurrent.futures
import os
import re
import time

import numpy as np
import pytest
import torch

import poptorch
from poptorch import _C
from tests import helpers

TEXT = re.compile(r"(\S+) \(measured (\d+) us((?:, \S+ \d+ us)+)\)")


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Measuring is on, and keeps what it finds here."""
    monkeypatch.setenv("POPTORCH_MEASURE", "1")
    os.unsetenv("POPTORCH_GEMM")  # which tests set behind os.environ
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def scale():
    """Sets the factor of an algorithm's estimated cost until the test ends."""
    scaled = []

    def set_scale(algorithm, factor):
        scaled.append(algorithm)
        _C.scale_cost(algorithm, factor)

    yield set_scale
    for algorithm in scaled:
        _C.scale_cost(algorithm, 1.0)


def product(m=512, n=512, k=512):
    return [np.ones((m, k), np.float32), np.ones((k, n), np.float32)]


def convolution():
    x, w = np.ones((2, 32, 32, 64), np.float32), np.ones((64, 5, 5, 64), np.float32)
    attrs = {"stride": [1, 1], "padding": [2, 2], "dilation": [1, 1], "transposed": False,
             "output_padding": [0, 0], "groups": 1, "layout": "channels_last"}
    return [x, w, None], attrs


def compute(seconds):
    """Keeps a core busy for so long."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def trials(**seconds):
    """Trials that take so long, and how often each ran."""
    runs = dict.fromkeys(seconds, 0)

    def trial(name):
        runs[name] += 1
        compute(seconds[name])

    return [lambda name=name: trial(name) for name in seconds], runs


def test_the_faster_is_chosen_and_measured_once(folder):
    calls, runs = trials(slow=0.004, fast=0.0005)
    found = _C.measured("some problem", ["slow", "fast"], calls)
    assert [name for name, _ in found] == ["fast", "slow"]
    assert found[0][1] < 3000 < found[1][1]
    before = dict(runs)
    assert _C.measured("some problem", ["slow", "fast"], calls) == found
    assert runs == before and min(before.values()) >= 4


def test_time_without_a_core_does_not_count(folder):
    """As that in which other programs run."""
    calls = [lambda: time.sleep(0.003), lambda: compute(0.0005)]
    assert _C.measured("interrupted", ["waits", "computes"], calls)[0][0] == "waits"


def test_a_slow_algorithm_of_low_estimated_cost_is_not_chosen(folder, scale, monkeypatch):
    """Plain loops take many times as long as the BLAS."""
    scale("gemm:loops", 1.7e-2)  # a little less than the estimated cost of the BLAS
    monkeypatch.setenv("POPTORCH_OFF", "small_gemm,blocked_gemm,split_k,bf16x3_gemm")
    monkeypatch.setenv("POPTORCH_MEASURE", "0")
    assert _C.algorithm_of("matmul", product()) == "loops"
    monkeypatch.setenv("POPTORCH_MEASURE", "1")
    name, us, others = TEXT.fullmatch(_C.algorithm_of("matmul", product())).groups()
    assert name == "blas"
    (other,) = re.findall(r", loops (\d+) us", others)
    assert int(us) < int(other)


def test_convolutions_are_measured_only_beside_a_unit(folder, monkeypatch):
    has_unit = "bf16x3" in _C.algorithm_of("convolution", *convolution())
    assert folder.exists() == has_unit
    monkeypatch.setenv("POPTORCH_OFF", "bf16x3_convolution")
    assert "measured" not in _C.algorithm_of("convolution", *convolution())


def test_problems_too_small_to_matter_are_not_measured(folder):
    assert "measured" not in _C.algorithm_of("matmul", product(64, 64, 64))
    assert not folder.exists()


def test_forced_and_named_algorithms_are_not_measured(folder, monkeypatch):
    monkeypatch.setenv("POPTORCH_ALGORITHM", "gemm:blas")
    assert _C.algorithm_of("matmul", product()) == "blas"
    monkeypatch.delenv("POPTORCH_ALGORITHM")
    monkeypatch.setenv("POPTORCH_OFF", "bf16x3_gemm")
    monkeypatch.setenv("POPTORCH_GEMM", "library")
    assert _C.algorithm_of("matmul", product()) == "blas"


def test_measuring_can_be_turned_off(folder, monkeypatch):
    monkeypatch.setenv("POPTORCH_MEASURE", "0")
    assert _C.measured("problem", ["a", "b"], trials(a=0, b=0)[0]) is None
    assert "measured" not in _C.algorithm_of("matmul", product())
    monkeypatch.setenv("POPTORCH_MEASURE", "yes")
    with pytest.raises(poptorch.Error, match=r'^\[POPTORCH_MEASURE\] expected 0 or 1, got "yes". '
                                             r"Set it to one of them, or unset it."):
        _C.algorithm_of("matmul", product())


def forward_and_backward(dtype):
    """The outputs and weights of two training steps of products and convolutions."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(),
                              torch.nn.Conv2d(32, 32, 1), torch.nn.Flatten(2),
                              torch.nn.Linear(256, 512)).to(dtype)
    x = torch.randn(4, 16, 16, 16).to(dtype)

    class WithLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            y = self.net(x)
            return y, poptorch.identity_loss((y * y).mean(), "none")

    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    model = poptorch.trainingModel(WithLoss(), helpers.quiet_options(), optimizer)
    outputs = [model(x)[0] for _ in range(2)]
    names = [name for phase in model.op_report(algorithms=True).values() for name in phase]
    return outputs, names


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_and_reports(folder, dtype, monkeypatch):
    """Whatever is chosen computes the same within rounding, and the report has both times."""
    measured, names = forward_and_backward(dtype)
    again, _ = forward_and_backward(dtype)
    helpers.check_equal_bits(again, measured)
    found = [name for name in names if "measured" in name]
    assert found
    assert all(re.fullmatch(r"\w+ \[.*\S+ \(measured \d+ us(, \S+ \d+ us)+\).*\]", name)
               for name in found)
    monkeypatch.setenv("POPTORCH_MEASURE", "0")
    estimated, names = forward_and_backward(dtype)
    assert not any("measured" in name for name in names)
    limit = 1e-5 if dtype == torch.float32 else 0.05
    for ours, other in zip(measured, estimated):
        assert (ours.float() - other.float()).abs().max() <= limit * other.float().abs().max()


def test_the_option_deterministic_does_not_measure_convolutions(folder):
    model = poptorch.inferenceModel(torch.nn.Conv2d(32, 32, 3),
                                    helpers.quiet_options(deterministic=True))
    model(torch.randn(2, 32, 32, 32))
    assert not any("measured" in name for name in model.op_report(algorithms=True)["forward"])


def test_threads_that_ask_at_once_get_one_answer(folder):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(_C.algorithm_of, "matmul", product()) for _ in range(4)]
        answers = {one.result() for one in asked}
    assert len(answers) == 1 and TEXT.fullmatch(*answers)
