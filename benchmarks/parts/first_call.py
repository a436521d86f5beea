"""Processor time of the first call, beside the bare capture by PyTorch's own tracer.

The first call runs a step, too; the tracer runs none. What every later call takes as well is no
cost of the first one, so it is taken off. The step's memory, which the kernel clears before anybody
can use it, has to be there in eager mode, too; the tracer's tensors have none. So user time is
compared with the tracer's, and time in the kernel stands beside that of eager's first step.
"""

import tempfile

from benchmarks import backends, measure, workloads
from benchmarks.part import Part, ratio, setting, start_row
from benchmarks.table import MODE, WORKLOAD, Column

REPEATS = {True: 1, False: 3}  # by whether --quick was given; the least counts

COLUMNS = [
    WORKLOAD,
    MODE,
    Column("compile", "compile user s", ".3f"),
    Column("run", "first run", ".3f"),
    Column("steady", "later run", ".3f"),
    Column("tracer", "bare capture", ".3f"),
    Column("over_tracer", "ratio", ".2f", 6),
    Column("system", "system s", ".3f"),
    Column("eager_system", "eager's", ".3f"),
    Column("cold", "torch.compile", ".1f"),
    Column("of_cold", "share", ".3f", 6),
    Column("per_layer", "ms a layer", ".1f"),
]


def _least(workload, mode, backend, repeats, environment=None):
    """Figures of the repetition that took the least time, each in a fresh process.

    Both ours and the tracer import a second's worth of modules when they first trace anything:
    that is done before. On one thread: processor time would count those that spin while they wait.
    """
    results = []
    for _ in range(repeats):
        one = [setting(workload, mode, backend, threads=1)]
        with measure.processes(one, environment, loaded=not environment) as started:
            started[0].note("steady_cpu")
        results.append(started[0].result)
        if results[-1].error:
            return results[-1]
    return min(results, key=_cost)


def _compiled_cold(workload, mode):
    """What torch.compile takes with an empty cache, its C++ compiler included."""
    with tempfile.TemporaryDirectory() as folder:
        # compiling in this process, so that the time of its children is known when it ends
        variables = {"TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        return _least(workload, mode, "compile", 1, variables)


def _row(plan, workload, mode):
    ours = _least(workload, mode, backends.OURS, REPEATS[plan.quick])
    tracer = _least(workload, mode, "tracer", REPEATS[plan.quick])
    eager = _least(workload, mode, "eager", REPEATS[plan.quick])
    cold = _compiled_cold(workload, mode) if plan.peers else None
    row = start_row(workload, mode, [ours, tracer, eager])
    if "error" in row:
        return row
    cost, figures = _cost(ours), ours.figures
    row |= {"compile": figures["compile_user_s"], "run": figures["first_run_user_s"]}
    row |= {"steady": figures["steady_user_s"], "cost": cost}
    row |= {"system": figures["first_call_system_s"]}
    row |= {"eager_system": eager.figures["first_call_system_s"]}
    row |= {"tracer": _cost(tracer), "over_tracer": ratio(cost, _cost(tracer))}
    if cold is not None and not cold.error:
        row |= {"cold": _cost(cold), "of_cold": ratio(cost, _cost(cold))}
    return row


def _cost(result):
    """User time of the first call beyond a later one."""
    figures = result.figures
    first_run = figures["first_run_user_s"] - figures["steady_user_s"]
    return figures["compile_user_s"] + max(0.0, first_run)


def _measure(plan):
    for workload, mode in plan.cases():
        yield [_row(plan, workload, mode)]
    depths = workloads.DEPTHS[: 2 if plan.quick else None]
    for layers, workload in zip(depths, workloads.WORKLOADS_BY_DEPTH, strict=False):
        row = _row(plan, workload, "train")
        if "error" not in row:
            row["per_layer"] = row["cost"] / layers * 1e3
        yield [row]


PART = Part("first-call", "processor time of the first call", COLUMNS, _measure)
