"""Modules in bfloat16, compared with float32 and with PyTorch's autocast to bfloat16."""

from benchmarks import backends, measure
from benchmarks.part import Part, mean_line, ratio, setting, start_row
from benchmarks.table import MODE, WORKLOAD, Column

COLUMNS = [
    WORKLOAD,
    MODE,
    Column("f32", "ours f32 ms", ".1f"),
    Column("bf16", "ours bf16 ms", ".1f"),
    Column("gain", "f32 / bf16", ".2f"),
    Column("eager", "autocast ms", ".1f"),
    Column("over_eager", "/ ours", ".2f"),
    Column("compiled", "compiled autocast ms", ".1f"),
    Column("over_compiled", "/ ours", ".2f"),
]
# Elsewhere products are too small for their format to matter.
WORKLOADS = ("convnet", "lstm", "resnet18", "resnet50", "vit", "bert", "gpt2")
SIDES = {
    "f32": (backends.OURS, "f32"),
    "bf16": (backends.OURS, "bf16"),
    "eager": ("autocast", "bf16"),
    "compiled": ("compile autocast", "bf16"),
}


def _measure(plan):
    names = None if plan.is_chosen else WORKLOADS
    for workload, mode in plan.timed(names):
        settings = [setting(workload, mode, name, dtype=dtype) for name, dtype in SIDES.values()]
        results = measure.measure(settings, plan.rounds, plan.block_s, plan.pace)
        yield [_row(workload, mode, results)]


def _row(workload, mode, results):
    row = start_row(workload, mode, results)
    for side, result in zip(SIDES, results, strict=True):
        if not result.error:
            row[side] = result.median_ms()
    row["gain"] = ratio(row.get("f32"), row.get("bf16"))
    for peer in ("eager", "compiled"):
        row[f"over_{peer}"] = ratio(row.get(peer), row.get("bf16"))
    return row


def conclude(rows):
    """The mean and the least of each ratio."""
    words = {
        "gain": "their own float32",
        "over_eager": "eager under autocast",
        "over_compiled": "torch.compile under autocast",
    }
    lines = []
    for mode in ("train", "infer"):
        for key, peer in words.items():
            ratios = {r["workload"]: r[key] for r in rows if r["mode"] == mode and r.get(key)}
            if ratios:
                subject = f"{mode}: modules in bfloat16 are"
                lines.append(mean_line(subject, ratios, f"fast as {peer}", min))
    return lines


PART = Part(
    "autocast",
    "bfloat16 against float32, and against PyTorch's autocast",
    COLUMNS,
    _measure,
    conclude,
    minutes=(8.0, 0.8),
)
