"""Forward and backward passes of torch.compile, without the optimizer, and their first calls.

The step of a trainingModel, which they are compared with, includes the update of the weights.
"""

import tempfile
from dataclasses import replace

from benchmarks import backends, measure
from benchmarks.part import Part, mean_line, ratio, setting, start_row
from benchmarks.table import WORKLOAD, Column
from benchmarks.workloads import IN_LOOPS, WORKLOADS

COLUMNS = [
    WORKLOAD,
    Column("model", "trainingModel ms", ".2f"),
    Column("ours", "torch.compile by poptorch ms", ".2f"),
    Column("over_model", "/ trainingModel", ".2f"),
    Column("inductor", "inductor ms", ".2f"),
    Column("over_inductor", "inductor / poptorch", ".2f"),
    Column("eager", "eager ms", ".2f"),
    Column("over_eager", "eager / poptorch", ".2f"),
    Column("first_s", "first call s", ".1f"),
    Column("inductor_first_s", "inductor's", ".1f"),
    Column("of_first", "share", ".3f"),
]
WHOLE = {"bert", "gpt2"}  # measured with two layers: a step has the same parts in less time
SIDES = {
    "model": backends.OURS,
    "ours": "compile graph by poptorch",
    "inductor": "compile graph",
    "eager": "eager graph",
}


def workloads_of(plan):
    """Those that are named, or all but loops and the whole language models."""
    if plan.is_chosen or plan.quick:
        return plan.workloads
    return [workload for workload in WORKLOADS if workload.name not in IN_LOOPS | WHOLE]


def _measure(plan):
    for workload, mode in replace(plan, workloads=workloads_of(plan)).timed(modes=["train"]):
        settings = [setting(workload, mode, name) for name in SIDES.values()]
        with tempfile.TemporaryDirectory() as folder:  # so that inductor compiles
            environment = {"TORCHINDUCTOR_CACHE_DIR": folder}
            with measure.processes(settings, environment, pace=plan.pace) as started:
                measure.take_turns(started, plan.rounds, plan.block_s, plan.pace)
                results = [process.result for process in started]
        yield [_row(workload, mode, results)]


def _row(workload, mode, results):
    by_side = dict(zip(SIDES, results, strict=True))
    row = start_row(workload, mode, [by_side["model"], by_side["ours"]])  # others may be late
    row |= {side: result.median_ms() for side, result in by_side.items() if not result.error}
    row["first_s"], row["inductor_first_s"] = (
        by_side[side].figures.get("first_call_s") for side in ("ours", "inductor"))
    row["over_model"] = ratio(row.get("ours"), row.get("model"))
    row["over_inductor"] = ratio(row.get("inductor"), row.get("ours"))
    row["over_eager"] = ratio(row.get("eager"), row.get("ours"))
    row["of_first"] = ratio(row["first_s"], row["inductor_first_s"])
    return row


def conclude(rows):
    """Geometric means and the worst of each ratio."""
    sentences = [
        ("over_model", "a step takes", "long as that of trainingModel", max),
        ("over_inductor", "a step is", "fast as inductor's", min),
        ("over_eager", "a step is", "fast as eager's", min),
        ("of_first", "a first call takes", "long as inductor's", max),
    ]
    lines = []
    for key, subject, comparison, worst in sentences:
        ratios = {row["workload"]: row[key] for row in rows if row.get(key)}
        if ratios:
            lines.append(mean_line(subject, ratios, comparison, worst))
    return lines


PART = Part(
    "torch-compile",
    "forward and backward by torch.compile, compared with trainingModel and inductor",
    COLUMNS,
    _measure,
    conclude,
    minutes=(12.0, 1.0),
)
