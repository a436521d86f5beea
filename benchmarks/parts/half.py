"""Half-precision models against the same in float32, and against eager."""

from benchmarks import backends, measure
from benchmarks.part import Part, ratio, setting, start_row
from benchmarks.table import MODE, WORKLOAD, Column

COLUMNS = [
    WORKLOAD,
    MODE,
    Column("dtype", "dtype", "", -5),
    Column("ms", "step ms", ".2f"),
    Column("over_f32", "x our f32", ".2f"),
    Column("eager_ms", "eager ms", ".2f"),
    Column("over_eager", "over eager", ".2f"),
]
# Eager takes seconds, and more, for a step of the large networks in half precision.
IN_FULL = ("convnet", "lstm", "resnet18", "bert-2-layers", "bert", "resnet50")
IN_QUICK = ("convnet", "bert-2-layers")


def _measure(plan):
    for workload in plan.named(*(IN_QUICK if plan.quick else IN_FULL)):
        for mode in plan.modes:
            yield _rows(plan, workload, mode)


def _rows(plan, workload, mode):
    settings = [
        setting(workload, mode, backend, dtype=dtype)
        for dtype in backends.DTYPES
        for backend in (backends.OURS, "eager")
    ]
    results = measure.measure(settings, max(2, plan.rounds // 2), plan.block_s)
    rows, single = [], None
    for ours, eager in zip(results[::2], results[1::2], strict=True):
        row = start_row(workload, mode, [ours]) | {"dtype": ours.setting.dtype}
        if not ours.error:
            row["ms"] = ours.median_ms()
            single = row["ms"] if row["dtype"] == "f32" else single
            row["over_f32"] = ratio(row["ms"], single)
        if not ours.error and not eager.error:
            row["eager_ms"] = eager.median_ms()
            row["over_eager"] = ratio(row["eager_ms"], row["ms"])
        rows.append(row)
    return rows


PART = Part("half", "float16 and bfloat16 against float32", COLUMNS, _measure)
