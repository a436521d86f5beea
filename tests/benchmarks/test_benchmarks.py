"""The measuring program: its statistics and tables, and one very short run."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from benchmarks import backends, parts, table, worker, workloads
from benchmarks.measure import Process, Result, take_turns
from benchmarks.part import Plan, ratio
from benchmarks.parts import (
    autocast,
    first_call,
    half,
    losses,
    profile,
    speed,
    switches,
    torch_compile,
)
from benchmarks.setting import Setting
from benchmarks.table import Column, Store
from poptorch import _C
from tests.helpers import ROOT


def _result(samples):
    return Result(Setting("mlp", "train", "eager"), samples=samples)


def test_disturbed_samples_are_dropped():
    result = _result([(1.0, 0.0), (1.2, 0.01), (9.0, 0.5), (1.1, 0.04)])
    assert result.clean() == [1.0, 1.2, 1.1]
    assert result.median_ms() == 1.1
    assert result.undisturbed() == 3


def test_least_disturbed_third_when_all_are():
    samples = [(5.0, 0.5), (1.0, 0.1), (2.0, 0.2), (6.0, 0.6), (7.0, 0.7), (8.0, 0.8)]
    assert _result(samples).clean() == [1.0, 2.0]


def test_a_slow_first_call_is_not_waited_for():
    with Process(Setting("mlp", "train", "eager")) as process:
        assert process.ask("setup", limit_s=0.0) == {}
        assert process.result.error == "no answer within 0 s"
        assert process.ask("warm") == {}


def test_a_long_first_call_is_the_only_sample():
    with Process(Setting("mlp-x100", "train", "eager")) as process:
        process.result.figures["first_call_s"] = 30.0
        process.keep_long_first_call()
        process.ask = None  # nothing else is asked for
        take_turns([process], 3, 0.1)
    assert process.result.median_ms() == 300.0


def test_half_precision_in_words():
    rows = [
        {"workload": name, "mode": "train", "dtype": dtype, "over_f32": over}
        for name, dtype, over in (("a", "f32", 1.0), ("a", "f16", 1.0), ("b", "f16", 4.0))
    ]
    assert half.conclude(rows) == [
        "train: f16 takes 2.00 times as long as f32 (geometric mean of 2; worst b 4.00)"
    ]


def test_bfloat16_beside_autocast():
    def result(backend, dtype, ms=None):
        setting = Setting("mlp", "train", backend, dtype=dtype)
        return Result(setting, [(ms, 0.0)] if ms else [], error="" if ms else "too late")

    results = [result("poptorch", "f32", 9.0), result("poptorch", "bf16", 6.0),
               result("autocast", "bf16", 12.0), result("compile autocast", "bf16")]
    row = autocast._row(workloads.find("mlp"), "train", results)
    assert row == {"workload": "mlp", "mode": "train", "f32": 9.0, "bf16": 6.0, "eager": 12.0,
                   "gain": 1.5, "over_eager": 2.0, "over_compiled": None,
                   "error": "compile autocast: too late"}
    lines = autocast.conclude([row])
    assert [line.split(" (")[0] for line in lines] == [
        "train: modules in bfloat16 are 1.50 times as fast as their own float32",
        "train: modules in bfloat16 are 2.00 times as fast as eager under autocast",
    ]


def test_autocast_keeps_the_weights_and_multiplies_in_bfloat16():
    job = backends.make_job(Setting("mlp", "infer", "autocast", dtype="bf16"))
    assert next(job.module.parameters()).dtype == torch.float32
    assert backends.find("autocast").make(job).call().dtype == torch.bfloat16


@pytest.mark.parametrize("workload", workloads.WORKLOADS, ids=lambda w: w.name)
def test_every_workload_has_a_batch_that_fits(workload):
    inputs = workload.inputs(workload.batch * workload.device_iterations)
    assert {len(x) for x in inputs} == {workload.batch * workload.device_iterations}


def test_a_setting_survives_the_command_line():
    setting = Setting("mlp", "infer", "eager", dtype="bf16", threads=2, off="cse,fold")
    assert Setting.parse(setting.text()) == setting


def test_backends_of_a_table():
    images, words = workloads.find("resnet18"), workloads.find("bert")
    assert "eager nhwc" in backends.suitable(images, "train", False)
    assert "eager nhwc" not in backends.suitable(words, "train", False)
    assert "openvino" in backends.suitable(words, "infer", True)
    assert not {"openvino", "tracer"} & set(backends.suitable(words, "train", True))


def test_only_tuned_backends_keep_the_heap():
    tuned = backends.environment(Setting("mlp", "train", "eager tuned"))
    assert tuned["MALLOC_MMAP_MAX_"] == "0"
    assert backends.environment(Setting("mlp", "train", "eager")) == {}
    assert backends.environment(Setting("mlp", "train", "poptorch", off="cse")) == {
        "POPTORCH_OFF": "cse"
    }


def test_graphs_of_torch_compile_are_measured_for_every_workload():
    plan = Plan(workloads=[workloads.find("mlp")], modes=["train"], rounds=1, block_s=1.0)
    left_out = {"mlp-x100", "mlp-x1000", "bert", "gpt2"}
    assert {w.name for w in torch_compile.workloads_of(plan)} == {
        w.name for w in workloads.WORKLOADS} - left_out
    for named in (replace(plan, is_chosen=True), replace(plan, quick=True)):
        assert torch_compile.workloads_of(named) == plan.workloads


def test_ratios_take_the_best_of_each_kind():
    def row(workload, backend, ms, error=""):
        return {
            "workload": workload,
            "mode": "train",
            "backend": backend,
            "ms": ms,
            "error": error,
        }

    a = [
        row("a", "eager", 4.0),
        row("a", "eager tuned", 3.0),
        row("a", "eager nhwc", 2.0),
        row("a", "poptorch", 1.0),
    ]
    b = [
        row("b", "eager", 2.0),
        row("b", "compile", 0.1, error="a graph break"),
        row("b", "poptorch", 2.0),
    ]
    rows = speed._compare(a) + speed._compare(b)
    overhead = speed._compare([row("mlp", "eager", 50.0), row("mlp", "poptorch", 1.0)])
    assert speed.conclude(rows + overhead) == speed.conclude(rows)
    assert speed.conclude(overhead) == []
    assert speed.ratios(rows, "train") == {
        "eager": {"a": 4.0, "b": 1.0},
        "tuned eager": {"a": 2.0},
    }
    assert speed.conclude(rows)[0].startswith("train: 2.00 times as fast as eager")
    assert "worst b 1.00" in speed.conclude(rows)[0]


def test_memory_of_eager_leaves_out_results():
    class Net(torch.nn.Module):
        def forward(self, x):
            step = (x + 1).repeat(2)
            return step.repeat(2).sum(), (x.repeat(10),)

    net, x = Net(), torch.zeros(10_000)
    for call in (lambda: net(x), lambda: net(x)[0], lambda: [net(x) for _ in range(2)]):
        most = worker._most_allocated(net, call)
        assert 0 <= most - 6 * 40_000 < 1000  # what `repeat` reads and makes; its scalars


def test_bytes_of_the_types_of_an_op():
    assert profile.bytes_of("f32[4,8](1,4), i64[3], _ -> f32[], bool[5], bf16[2]") == 128 + 24 + 13


def test_profile_is_summed_by_op():
    def item(op, runs, ns, flops=10):
        types = "f32[10] -> f32[10]"
        return {"op": op, "phase": "forward", "types": types, "runs": runs, "ns": ns,
                "flops": flops}

    items = [item("add", 2, 3e6, 6e6), item("mul", 4, 1e6, None), item("loop", 2, 9e6)]
    rows = profile.by_op(items, 2)
    assert [row["op"] for row in rows] == ["add", "mul"]
    assert rows[0]["ms"] == 1.5 and rows[0]["runs"] == 1 and rows[0]["share"] == 0.75
    assert rows[0]["mb"] == 80e-6
    assert rows[0]["gflops"] == 4 and rows[1]["gflops"] is None


def test_loss_curves_are_compared_with_the_middle_of_eagers():
    deviation, spread = losses.compare([1.0, 2.0], [[1.0, 2.1], [1.0, 2.3]])
    assert deviation == pytest.approx(0.2) and spread == pytest.approx(0.2)


def test_rows_measured_again_replace_the_old_ones(tmp_path):
    store, old = Store(tmp_path / "figures.json"), {"machine": "x", "version": "1"}
    store.add("speed", [{"workload": "a", "mode": "train", "ms": 1, "samples": [1, 2]}], old)
    other = Store(tmp_path / "figures.json")
    other.add("speed", [{"workload": "b", "mode": "train", "ms": 2}], old)
    store.add("speed", [{"workload": "a", "mode": "train", "ms": 3}], old | {"version": "2"})
    again = Store(tmp_path / "figures.json")
    found = [(row["workload"], row["ms"], row["version"]) for row in again.rows("speed")]
    assert found == [("b", 2, "1"), ("a", 3, "2")]
    assert "samples" not in again.rows("speed")[0] and again.rows("memory") == []
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_rows_of_another_machine_stay(tmp_path):
    store, row = Store(tmp_path / "figures.json"), {"workload": "a", "mode": "train"}
    for machine in ("x", "y", "x"):
        store.add("speed", [row | {"backend": "eager"}], {"machine": machine})
    assert store.machines() == ["x", "y"] and len(store.rows("speed")) == 2
    assert len(store.rows("speed", "y")) == 1


def test_some_backends_measured_again_keep_the_rows_of_others(tmp_path):
    store, case = Store(tmp_path / "figures.json"), {"workload": "a", "mode": "train"}
    keys = parts.find("speed").keys

    def add(**times):
        rows = [case | {"backend": name, "ms": ms} for name, ms in times.items()]
        store.add("speed", speed._compare(rows), {"machine": "x"}, keys)

    add(eager=4.0, compile=3.0, poptorch=1.0)
    add(eager=40.0, poptorch=20.0)  # in a slow hour
    found = speed.ratios(store.rows("speed"), "train")
    assert found["eager"] == {"a": 2.0} and found["torch.compile"] == {"a": 3.0}


def test_tables():
    columns = [Column("name", "name", "", -6), Column("ms", "ms", ".1f", 5)]
    rows = [{"name": "a", "ms": 1.25}, {"name": "b", "ms": None}, {"name": "c", "error": "no"}]
    assert [table.row_line(columns, row) for row in rows] == [
        "a         1.2",
        "b           -",
        "c  failed: no",
    ]
    assert table.markdown(columns, rows).splitlines()[1:] == ["| --- | ---: |", "| a | 1.2 |",
                                                              "| b | - |"]


def test_switches_are_listed():
    names = [name for name, doc in _C.switches() if doc]
    assert "flush_denormals" in names and len(names) == len(set(names))
    assert not set(names) & {name for name, _ in _C.passes()}
    measured = switches.names()
    listed = " ".join(switches.WHERE.values()).split()
    assert not set(listed) - set(measured)
    assert {name for every in switches.places(measured).values() for name in every} == set(measured)
    for workload, _, dtype in switches.WHERE:
        assert workloads.find(workload) and dtype in backends.DTYPES
    assert set(measured) == {*names, *_C.pipeline()} and len(measured) == len(set(measured))


@pytest.mark.sampled
def test_what_a_switch_is_worth():
    plan = Plan([], ["infer"], 1, 0.1, quick=True)
    mlp = workloads.find("mlp")
    row, unknown = switches._rows(plan, mlp, "infer", "f32", ["small_gemm", "no_such_thing"])
    assert not row.get("error"), row["error"]
    assert row["worth"] == row["ms"] / row["all_ms"] - 1 and row["worth_mb"] is not None
    assert "no_such_thing" in unknown["error"] and unknown["switch"] == "no_such_thing"


def test_unknown_names_list_the_known_ones():
    for find, known in [(parts.find, "speed"), (workloads.find, "mlp"), (backends.find, "eager")]:
        with pytest.raises(SystemExit, match=known):
            find("no such thing")


@pytest.mark.sampled
def test_a_short_run_gives_a_table_and_a_file(tmp_path):
    output = tmp_path / "result.json"
    words = ["--quick", "-w", "mlp", "--rounds", "1", "--mode", "train", "--output", str(output),
             "--minutes", "0.2"]
    command = [sys.executable, "-m", "benchmarks", *words, "speed", "machine"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("in about 0.2 min") == 2
    found = json.loads(output.read_text())["parts"]
    names = [row["backend"] for row in found["speed"]]
    assert names == ["eager", "eager tuned", "poptorch", "floor"]
    for row in found["speed"]:
        assert not row.get("error"), row["error"]
        assert row["of_ours"] > 0 and row["first_call_s"] > 0 and row["peak_mb"] > 0
        assert row["machine"] and row["version"] and row["backend"] in done.stdout
    assert found["machine"][-1]["gflops"] > 0


@pytest.mark.sampled
def test_first_call_is_compared_without_the_arithmetic_of_a_step():
    row = first_call._row(Plan([], ["train"], 1, 0.1, quick=True), workloads.find("mlp"), "train")
    assert not row.get("error"), row["error"]
    assert row["cost"] == row["compile"] + max(0.0, row["run"] - row["steady"])
    assert row["over_tracer"] == ratio(row["cost"], row["tracer"])
    assert math.isfinite(row["cost"])  # no error went in as an endless one
    assert row["system"] >= 0 and row["eager_system"] >= 0
