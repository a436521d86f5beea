"""The measuring program: its statistics, and one very short run."""

import json
import subprocess
import sys

from benchmarks import backends, workloads
from benchmarks.measure import Result
from tests.helpers import ROOT


def _result(samples):
    return Result("mlp", "train", "eager", samples=samples)


def test_disturbed_samples_are_dropped():
    result = _result([(1.0, 0.0), (1.2, 0.01), (9.0, 0.5), (1.1, 0.04)])
    assert result.clean() == [1.0, 1.2, 1.1]
    assert result.median_ms() == 1.1
    assert result.undisturbed() == 3


def test_least_disturbed_third_when_all_are():
    samples = [(5.0, 0.5), (1.0, 0.1), (2.0, 0.2), (6.0, 0.6), (7.0, 0.7), (8.0, 0.8)]
    assert _result(samples).clean() == [1.0, 2.0]


def test_every_workload_has_a_batch_that_fits():
    for workload in workloads.WORKLOADS:
        inputs = workload.inputs(workload.batch * workload.device_iterations)
        assert {len(x) for x in inputs} == {workload.batch * workload.device_iterations}


def test_a_short_run_gives_a_table_and_a_file(tmp_path):
    output = tmp_path / "result.json"
    words = ["--quick", "-w", "mlp", "--rounds", "1", "--mode", "train", "--output", str(output)]
    command = [sys.executable, "-m", "benchmarks", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = json.loads(output.read_text())["results"]
    assert [row["backend"] for row in rows] == backends.USUAL
    for row in rows:
        assert row["error"] == "", row["error"]
        assert row["samples"] and row["first_call_s"] > 0 and row["peak_mb"] > 0
        assert row["backend"] in done.stdout
