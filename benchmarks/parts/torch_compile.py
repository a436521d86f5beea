"""Forward and backward passes of torch.compile, without the optimizer, and their first calls.

The step of a trainingModel, which they are compared with, includes the update of the weights.
"""

import tempfile

from benchmarks import backends, measure
from benchmarks.part import Part, mean_line, ratio, setting, start_row
from benchmarks.table import WORKLOAD, Column

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
WORKLOADS = ("mlp", "convnet", "lstm", "elementwise", "resnet18", "vit", "bert-2-layers",
             "gpt2-2-layers")
SIDES = {
    "model": backends.OURS,
    "ours": "compile graph by poptorch",
    "inductor": "compile graph",
    "eager": "eager graph",
}


def _measure(plan):
    names = None if plan.is_chosen else WORKLOADS
    for workload, mode in plan.timed(names, modes=["train"]):
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
    minutes=(8.0, 1.0),
)
