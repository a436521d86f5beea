"""Step times of all backends side by side, and how far they are from the floor."""

import math

from benchmarks import backends, measure
from benchmarks.part import Part, mean_line, ratio, setting, start_row
from benchmarks.table import MODE, WORKLOAD, Column

MOST_DENORMALS = 1e-3  # share of the gradients from which on eager's time says nothing

COLUMNS = [
    WORKLOAD,
    MODE,
    Column("backend", "backend", "", -14),
    Column("ms", "step ms", ".3f", 10),
    Column("p10", "p10 ms", ".3f", 10),
    Column("over_eager", "over eager", ".2f"),
    Column("over_floor", "x floor", ".2f", 7),
    Column("first_call_s", "first call s", ".2f"),
    Column("peak_mb", "peak MiB", ".0f"),
    Column("clean", "clean", "", 9),
]
# The best of these counts as tuned eager, or tuned torch.compile.
KINDS = {
    "eager": ["eager"],
    "tuned eager": ["eager tuned", "eager nhwc"],
    "torch.compile": ["compile"],
    "torch.compile, best": ["compile", "compile tuned", "compile step", "compile frozen"],
    "ONNX Runtime": ["onnxruntime"],
    "OpenVINO": ["openvino"],
}
# Left out of the means, which they would flatter: training the tiny network is all overhead, which
# has a part of its own, and PyTorch unrolls a GRU.
OUTSIDE_MEANS = {
    "train": {"mlp", "mlp-x100", "mlp-x1000", "gru"},
    "infer": {"mlp-x100", "mlp-x1000", "gru"},
}


def _row(workload, mode, result):
    row = start_row(workload, mode) | {"backend": result.setting.backend} | result.figures
    if result.error:
        return row | {"error": result.error}
    times = sorted(result.clean())
    row |= {"ms": result.median_ms(), "p10": times[len(times) // 10], "samples": result.samples}
    row["clean"] = f"{result.undisturbed()}/{len(result.samples)}"
    if row.get("denormals", 0.0) > MOST_DENORMALS:
        row["error"] = f"{row['denormals']:.1%} of the gradients are denormal numbers"
    return row


def _compare(rows):
    times = {row["backend"]: row["ms"] for row in rows if "ms" in row}
    for row in rows:
        row["over_eager"] = ratio(times.get("eager"), row.get("ms"))
        row["over_floor"] = ratio(row.get("ms"), times.get("floor"))
        # kept, since a later run may measure some of the backends again
        row["of_ours"] = ratio(row.get("ms"), times.get(backends.OURS))
    return rows


def _measure(plan):
    for workload, mode in plan.timed():
        names = plan.backends or backends.suitable(workload, mode, plan.peers)
        names = dict.fromkeys([*names, backends.OURS])  # nothing means much without ours
        settings = [setting(workload, mode, name) for name in names]
        with measure.processes(settings, pace=plan.pace) as started:
            measure.take_turns(started, plan.rounds, plan.block_s, plan.pace)
            for process in started:
                process.note("memory")
                if process.result.setting.backend == "floor":
                    process.result.figures["floor"] = process.ask("floor")
                    process.result.figures["floor"].pop("rows", None)
                elif process.result.setting.backend == "eager" and mode == "train":
                    process.note("denormals")
            rows = [_row(workload, mode, process.result) for process in started]
        yield _compare([row for row in rows if not _is_empty_floor(row)])


def _is_empty_floor(row):
    return "floor" in row and not row["floor"]["totals"]["calls"]


def ratios(rows, mode):
    """How many times as fast as each kind of peer we are, by workload."""
    found = {}
    for row in rows:
        if row["mode"] != mode or row.get("error") or not row.get("of_ours"):
            continue
        for kind, names in KINDS.items():
            if row["backend"] in names:
                values = found.setdefault(kind, {})
                values[row["workload"]] = min(
                    row["of_ours"], values.get(row["workload"], math.inf)
                )
    return {kind: found[kind] for kind in KINDS if kind in found}


def counted(rows, mode):
    """The same of those workloads that count in the means."""
    return {
        kind: {w: value for w, value in every.items() if w not in OUTSIDE_MEANS[mode]}
        for kind, every in ratios(rows, mode).items()
    }


def conclude(rows):
    """Geometric means and the worst of each kind of peer."""
    lines = []
    for mode in ("train", "infer"):
        for kind, values in counted(rows, mode).items():
            if values:
                lines.append(mean_line(f"{mode}:", values, f"fast as {kind}", min))
    return lines


PART = Part(
    "speed",
    "step times, compared with PyTorch and the floor",
    COLUMNS,
    _measure,
    conclude,
    minutes=(18.0, 3.0),
    keys=("workload", "mode", "backend"),
)
