"""Time that is bounded: of cases, of answers, of runs that are interrupted; and clean samples."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks import measure, workloads
from benchmarks.measure import Process, Result
from benchmarks.pace import Pace
from benchmarks.part import Plan
from benchmarks.parts import first_call, losses
from benchmarks.setting import Setting
from benchmarks.worker import Worker
from tests.helpers import ROOT

OURS = Setting("mlp", "train", "poptorch", threads=1)


class Clock:
    """Stands for time.monotonic."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr("benchmarks.pace.time.monotonic", lambda: self.now)


def test_cases_share_the_time_by_weight(monkeypatch):
    clock, found = Clock(monkeypatch), []
    pace = Pace(100.0)
    for case in pace.each([1.0, 4.0, 5.0], lambda case: case):
        found.append((case, pace.left_s()))
        clock.now += {1.0: 28.0, 4.0: 0.0, 5.0: 200.0}[case]
    # what the first one took too much is taken from the others; what the second one left is used
    assert found == [(1.0, 10.0), (4.0, pytest.approx(32.0)), (5.0, pytest.approx(72.0))]
    assert pace.left_s() == 0.0


class Turn:
    """A process that takes its time."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds, self.result, self.blocks = clock, seconds, Result(OURS), 0

    def ask(self, do, **_):
        self.clock.now += self.seconds if do == "block" else 0.0
        self.blocks += do == "block"
        return {"samples": [[1.0, 0.0]]} if do == "block" else {}


@pytest.mark.parametrize(("seconds", "blocks"), [(100.0, 6), (7.0, 3), (0.0, 1)])
def test_rounds_end_when_the_time_of_the_case_does(monkeypatch, seconds, blocks):
    clock = Clock(monkeypatch)
    monkeypatch.setattr("benchmarks.measure.time.perf_counter", lambda: clock.now)
    turns, pace = [Turn(clock, 1.0), Turn(clock, 1.0)], Pace(seconds)
    measure.take_turns(turns, 6, 1.0, pace)
    assert [turn.blocks for turn in turns] == [blocks, blocks]
    assert len(turns[0].result.samples) == blocks


def test_a_process_that_is_late_is_ended():
    with Process(OURS) as process:
        assert process.ask("ready") and not process.is_late
        assert process.ask("setup", limit_s=0.0) == {}
        assert process.is_late and "no answer within 0 s" in process.result.error
        assert process.ask("ready") == {}  # no process is left
        assert process.process.wait(timeout=10) == -signal.SIGKILL


def test_what_a_process_says_when_it_fails():
    with Process(Setting("no such thing", "train", "eager")) as process:
        process.note("setup")
    assert "no workload 'no such thing'" in process.result.error and not process.is_late


@pytest.mark.sampled
def test_samples_taken_while_another_process_held_the_core_are_dropped():
    """All on one core, so that it does not matter what else the machine does."""
    core = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{core}]); print(1, flush=True)\nwhile True: pass"
    with Process(OURS) as process:
        process.ask("setup")
        process.ask("warm")
        for task in os.listdir(f"/proc/{process.process.pid}/task"):
            os.sched_setaffinity(int(task), [core])
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
            try:
                assert other.stdout.readline()
                disturbed = process.ask("block", seconds=1.0, at_least=10)["samples"]
            finally:
                other.kill()
    # How many of them depends on how long the scheduler lets each process run.
    held = [sample for sample in disturbed if sample[1] > 2 * measure.MOST_WAITING]
    assert len(held) >= 10, disturbed
    result = Result(OURS, samples=[*held, *[(1.0, 0.0)] * len(held)])
    assert result.clean() == [1.0] * len(held) and result.undisturbed() == len(held)


def test_growth_in_as_many_calls_as_the_time_allows():
    worker = Worker(Setting("mlp", "infer", "eager"))
    worker.setup()
    assert worker.growth(calls=20, seconds=60.0)["growth_calls"] == 20
    assert worker.growth(calls=10**9, seconds=0.05)["growth_calls"] < 10**5


@pytest.mark.sampled
def test_loss_curves_of_a_small_network():
    plan = Plan([workloads.find("mlp")], ["train"], 1, 0.1, quick=True)
    settings = [Setting("mlp", "train", name, threads=threads, learns=True)
                for threads in (1, 2) for name in ("poptorch", "eager")]
    results, curves = losses._curves(settings, plan.pace)
    assert [result.setting for result in results] == settings
    assert all(len(curve) == losses.STEPS and curve[-1] < curve[0] for curve in curves)


def test_networks_of_loss_curves_are_whole():
    for name in workloads.SMALLER:
        whole = workloads.find(name)
        less = workloads.smaller(whole)
        assert less.network is whole.network and less.batch <= whole.batch
        assert {len(x) for x in less.inputs(less.batch)} == {less.batch}


@pytest.mark.sampled
def test_a_cold_compilation_that_takes_long_is_ended():
    plan = Plan([], ["train"], 1, 0.1, peers=True, quick=True)
    found = first_call._compiled_cold(plan, workloads.find("convnet"), ["train"], 4.0)
    cold, is_ended = found["train"]
    assert is_ended and cold >= 0.0


@pytest.mark.sampled
def test_an_interrupted_run_keeps_its_rows(tmp_path):
    output = tmp_path / "figures.json"
    words = ["-w", "mlp", "-w", "lstm", "--rounds", "1000", "--mode", "infer", "--output"]
    command = [sys.executable, "-m", "benchmarks", "machine", "speed", *words, str(output)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL) as run:
        try:
            deadline = time.monotonic() + 120
            while not output.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            time.sleep(1.0)
            run.send_signal(signal.SIGTERM)
            text = run.communicate(timeout=120)[0]
        finally:
            run.kill()  # who leaves the block waits for its end
    assert run.returncode == 130 and "interrupted" in text
    assert json.loads(output.read_text())["parts"]["machine"]
