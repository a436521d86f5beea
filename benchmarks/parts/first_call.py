"""Processor time of the first call, compared with the bare capture by PyTorch's own tracer.

The first call runs a step, too; the tracer runs none. What every later call takes as well is no
cost of the first one, so it is taken off. The step's memory, which the kernel clears before it
can use it, has to be there in eager mode, too; the tracer's tensors have none. So user time is
compared with the tracer's, and time in the kernel with that of eager's first step.
"""

import math
import tempfile
import time

from benchmarks import backends, measure, workloads
from benchmarks.clocks import cpu
from benchmarks.part import Part, ratio, setting, start_row
from benchmarks.table import MODE, WORKLOAD, Column

REPEATS = 2  # the least counts; one is enough where it takes long
COLD_S = 15.0  # torch.compile is ended after so long, or so many times ours if that is longer
COLD_TIMES = 15.0
MOST_COLD_LAYERS = 24

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
    Column("cold_text", "torch.compile", ""),
    Column("share_text", "share", "", 7),
    Column("per_layer", "ms a layer", ".1f"),
]


def _rounds(plan, workload, mode):
    """Figures of (ours, tracer, eager): of the repetition that took the least time.

    Each is a fresh process. Both ours and the tracer import a second's worth of modules when they
    first trace anything: that is done before. On one thread: processor time would count those that
    spin while they wait.
    """
    names, found = (backends.OURS, "tracer", "eager"), []
    for repeat in range(1 if plan.quick or _is_long(workload) else REPEATS):
        if repeat > 0 and not plan.pace.left_s():
            break
        settings = [setting(workload, mode, name, threads=1) for name in names]
        with measure.processes(settings, loaded=True, pace=plan.pace) as started:
            for process in started:
                process.note("steady_cpu")
        found.append([process.result for process in started])
    return [min(results, key=_cost) for results in zip(*found, strict=True)]


def _is_long(workload):
    return workload.is_large or workload.name.startswith("narrow")


def _compiled_cold(plan, workload, modes, limit_s):
    """By mode: what torch.compile takes with an empty cache, its C++ compiler included.

    All at once, as there is a core for each. One that takes longer than ``limit_s`` is ended; what
    it has taken until then is less than what it takes.

    Returns:
        (user time in seconds, or None if it compiled nothing or failed; what to show of it)
    """
    plan.pace.tell(f"{workload.name}: torch.compile with an empty cache")
    started, found = [], {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for mode in modes:
                # compiling in its process, so that the time of its children is known at the end
                variables = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/{mode}",
                             "TORCHINDUCTOR_COMPILE_THREADS": "1"}
                one = setting(workload, mode, "compile", threads=1)
                started.append(measure.Process(one, variables))
            for process in started:
                process.send("ready")
            for process in started:
                process.result.figures |= process.receive()
                process.send("setup")
            end = time.monotonic() + limit_s
            for mode, process in zip(modes, started, strict=True):
                found[mode] = _cold_cost(process, end)
        finally:
            for process in started:
                process.close()
    return found


def _cold_cost(process, end):
    imports_s = process.result.figures.get("imports_user_s", 0.0)
    process.result.figures |= process.receive(max(0.0, end - time.monotonic()))
    if not process.result.error:
        process.note("compiled_graphs")
        if process.result.figures.get("compiled_graphs") == 0:
            return None, "compiles nothing"
        process.note("steady_cpu")
        cost = _cost(process.result)
        return cost, f"{cost:.1f}"
    before = cpu()
    process.close()
    if not process.is_late:
        return None, "failed"
    spent_s = (cpu() - before).user_s - imports_s
    return spent_s, f"> {spent_s:.0f}"


def _row(plan, workload, mode):
    ours, tracer, eager = _rounds(plan, workload, mode)
    row = start_row(workload, mode, [ours, tracer, eager])
    if "error" in row:
        return row
    cost, figures = _cost(ours), ours.figures
    row |= {"compile": figures["compile_user_s"], "run": figures["first_run_user_s"]}
    row |= {"steady": figures["steady_user_s"], "cost": cost}
    row |= {"system": figures["first_call_system_s"]}
    row |= {"eager_system": eager.figures["first_call_system_s"]}
    return row | {"tracer": _cost(tracer), "over_tracer": ratio(cost, _cost(tracer))}


def _add_cold(plan, workload, rows):
    """Puts what torch.compile takes into the rows of the modes."""
    good = {row["mode"]: row for row in rows if "error" not in row}
    if not plan.peers or not good:
        return
    limit_s = max(COLD_S, COLD_TIMES * max(row["cost"] for row in good.values()))
    for mode, (cold, text) in _compiled_cold(plan, workload, list(good), limit_s).items():
        good[mode]["cold_text"] = text
        if cold:
            share, less = good[mode]["cost"] / cold, "< " if text.startswith(">") else ""
            good[mode] |= {"cold": cold, "of_cold": share, "share_text": f"{less}{share:.3f}"}


def _cost(result):
    """User time of the first call beyond a later one."""
    figures = result.figures
    if result.error:
        return math.inf
    first_run = figures["first_run_user_s"] - figures["steady_user_s"]
    return figures["compile_user_s"] + max(0.0, first_run)


def _measure(plan):
    depths = workloads.DEPTHS[: 2 if plan.quick else None]
    layers = {f"narrow-{count}": count for count in depths}
    by_depth = [] if plan.is_chosen else workloads.WORKLOADS_BY_DEPTH[: len(depths)]
    chosen = [workload for workload in plan.workloads if workload.name not in workloads.IN_LOOPS]
    for workload in plan.pace.each([*chosen, *by_depth]):
        modes = plan.modes if workload in chosen else ["train"]
        rows = [_row(plan, workload, mode) for mode in modes]
        count = layers.get(workload.name)
        for row in rows:
            if count and "error" not in row:
                row["per_layer"] = row["cost"] / count * 1e3
        if (count or 0) <= MOST_COLD_LAYERS:
            _add_cold(plan, workload, rows)
        yield rows


PART = Part(
    "first-call", "processor time of the first call", COLUMNS, _measure, minutes=(9.0, 1.0)
)
