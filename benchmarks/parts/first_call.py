"""Processor time of the first call, beside the bare capture by PyTorch's own tracer."""

import tempfile

from benchmarks import backends, measure, workloads
from benchmarks.part import Part, ratio, setting, start_row
from benchmarks.table import MODE, WORKLOAD, Column

REPEATS = {True: 1, False: 3}  # by whether --quick was given; the least counts

COLUMNS = [
    WORKLOAD,
    MODE,
    Column("compile", "compile CPU s", ".3f"),
    Column("run", "first run", ".3f"),
    Column("tracer", "bare capture", ".3f"),
    Column("over_tracer", "ratio", ".2f", 6),
    Column("cold", "torch.compile", ".1f"),
    Column("of_cold", "share", ".3f", 6),
    Column("per_layer", "ms a layer", ".1f"),
]


def _least(workload, mode, backend, repeats, environment=None):
    """Figures of the repetition that took the least time, each in a fresh process.

    Both ours and the tracer import a second's worth of modules when they first trace anything:
    that is done before.
    """
    results = []
    for _ in range(repeats):
        one = [setting(workload, mode, backend)]
        with measure.processes(one, environment, loaded=not environment) as started:
            pass
        results.append(started[0].result)
        if results[-1].error:
            return results[-1]
    return min(results, key=lambda r: r.figures["compile_cpu_s"] + r.figures["first_run_cpu_s"])


def _compiled_cold(workload, mode):
    """What torch.compile takes with an empty cache, its C++ compiler included."""
    with tempfile.TemporaryDirectory() as folder:
        # compiling in this process, so that the time of its children is known when it ends
        variables = {"TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        return _least(workload, mode, "compile", 1, variables)


def _row(plan, workload, mode):
    ours = _least(workload, mode, backends.OURS, REPEATS[plan.quick])
    tracer = _least(workload, mode, "tracer", REPEATS[plan.quick])
    cold = _compiled_cold(workload, mode) if plan.peers else None
    row = start_row(workload, mode, [ours, tracer])
    if "error" in row:
        return row
    whole = _whole(ours)
    row |= {"compile": ours.figures["compile_cpu_s"], "run": ours.figures["first_run_cpu_s"]}
    row |= {"tracer": _whole(tracer), "over_tracer": ratio(whole, _whole(tracer))}
    if cold is not None and not cold.error:
        row |= {"cold": _whole(cold), "of_cold": ratio(whole, _whole(cold))}
    return row


def _whole(result):
    return result.figures["compile_cpu_s"] + result.figures["first_run_cpu_s"]


def _measure(plan):
    for workload, mode in plan.cases():
        yield [_row(plan, workload, mode)]
    depths = workloads.DEPTHS[: 2 if plan.quick else None]
    for layers, workload in zip(depths, workloads.WORKLOADS_BY_DEPTH, strict=False):
        row = _row(plan, workload, "train")
        if "error" not in row:
            row["per_layer"] = (row["compile"] + row["run"]) / layers * 1e3
        yield [row]


PART = Part("first-call", "processor time of the first call", COLUMNS, _measure)
