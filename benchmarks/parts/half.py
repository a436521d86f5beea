"""Half-precision models against the same in float32, and against eager."""

from benchmarks import backends, measure
from benchmarks.part import Part, mean_line, ratio, setting, start_row
from benchmarks.table import MODE, WORKLOAD, Column

COLUMNS = [
    WORKLOAD,
    MODE,
    Column("dtype", "dtype", "", -5),
    Column("ms", "step ms", ".2f"),
    Column("over_f32", "x our f32", ".2f"),
    Column("memory", "step MiB", ".1f"),
    Column("memory_over_f32", "x our f32", ".2f"),
    Column("eager_ms", "eager ms", ".2f"),
    Column("over_eager", "over eager", ".2f"),
]
# Eager takes minutes for a step of the large networks in half precision. A first call that takes
# as long as this is not waited for; a row of eager's is empty then.
PATIENCE_S = 60.0


def _measure(plan):
    for workload, mode in plan.timed():
        yield _rows(plan, workload, mode)


def _rows(plan, workload, mode):
    names = [name for name in (backends.OURS, "eager") if name in (plan.backends or (name,))]
    settings = [
        setting(workload, mode, name, dtype=dtype) for dtype in backends.DTYPES for name in names
    ]
    with measure.processes(settings, pace=plan.pace, limit_s=PATIENCE_S) as started:
        for process in started:
            process.keep_long_first_call()
        # Many processes take turns: with short blocks those that are compared lie closer together.
        measure.take_turns(started, plan.rounds, plan.block_s / 2, plan.pace)
        for process in started:
            if process.result.setting.backend == backends.OURS:
                process.note("tensors")
    results = {(p.result.setting.dtype, p.result.setting.backend): p.result for p in started}
    rows = []
    for dtype in backends.DTYPES:
        ours, eager = (results.get((dtype, name)) for name in (backends.OURS, "eager"))
        row = start_row(workload, mode, [ours]) | {"dtype": dtype}
        first = rows[0] if rows else row
        if not ours.error:
            row |= {"ms": ours.median_ms(), "memory": ours.figures.get("tensors_mb")}
            row["over_f32"] = ratio(row["ms"], first.get("ms"))
            row["memory_over_f32"] = ratio(row["memory"], first.get("memory"))
        if eager and eager.samples and not ours.error:
            row["eager_ms"] = eager.median_ms()
            row["over_eager"] = ratio(row["eager_ms"], row["ms"])
        rows.append(row)
    return rows


def conclude(rows):
    """The mean and the worst of each format."""
    lines = []
    for dtype in ("f16", "bf16"):
        for mode in ("train", "infer"):
            chosen = [row for row in rows if row["dtype"] == dtype and row["mode"] == mode]
            ratios = {row["workload"]: row["over_f32"] for row in chosen if row.get("over_f32")}
            if ratios:
                lines.append(mean_line(f"{mode}: {dtype} takes", ratios, "long as f32", max))
    return lines


PART = Part(
    "half",
    "float16 and bfloat16 against float32",
    COLUMNS,
    _measure,
    conclude,
    minutes=(8.0, 0.8),
    keys=("workload", "mode", "dtype"),
)
