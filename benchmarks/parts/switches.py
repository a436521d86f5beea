"""What each optimization is worth: step times and memory with it turned off."""

from benchmarks import backends, measure, workloads
from benchmarks.part import Part, ratio, setting, start_row
from benchmarks.table import MODE, WORKLOAD, Column

AT_ONCE = 5  # variants that share the memory, in addition to the full program

COLUMNS = [
    WORKLOAD,
    MODE,
    Column("switch", "turned off", "", -24),
    Column("ms", "step ms", ".3f", 10),
    Column("all_ms", "all on", ".3f", 10),
    Column("worth", "worth", "+.1%", 8),
    Column("worth_mb", "MiB", "+.1f", 8),
    Column("clean", "clean", ".0f", 6),
]
# Where an optimization has something to do; all on all would take hours. One that is not here is
# measured in ANYWHERE. Keys are workload, mode and number format.
WHERE = {
    ("mlp-x100", "train", "f32"): "small_gemm fuse inplace dead_inputs dce simplify",
    ("mlp-x100", "infer", "f32"): "small_gemm direct_streams",
    ("convnet", "train", "f32"): "channels_last compact_argmax weights_last bf16x3_convolution "
    "bf16x3_gemm inplace views direct_streams few_channels direct_weight_gradient winograd",
    ("convnet", "infer", "f32"): "channels_last fuse_convolution few_channels batch_tiling "
    "winograd",
    ("resnet18", "train", "f32"): "fuse_batch_norm rematerialize_batch_norm channels_last "
    "weights_last bf16x3_convolution direct_weight_gradient winograd",
    ("resnet18", "infer", "f32"): "fold_batch_norm fuse_convolution hoist plain_weights "
    "bf16x3_convolution blocked_pointwise winograd",
    ("resnet50", "infer", "f32"): "blocked_pointwise",
    ("depthwise", "train", "f32"): "depthwise split_k",
    ("lstm", "train", "f32"): "packed_gemm blocked_gemm split_k bf16x3_gemm cse "
    "recurrent_entries",
    ("elementwise", "train", "f32"): "fuse inplace cse fold rematerialize_elementwise",
    ("elementwise", "infer", "f32"): "fuse inplace",
    ("elementwise", "train", "f16"): "blocked_upcast fuse",
    ("bert-2-layers", "train", "f32"): "fuse_cross_entropy bf16x3_gemm blocked_gemm fuse "
    "views simplify",
    ("bert-2-layers", "infer", "f32"): "blocked_gemm direct_streams share_weights",
    ("bert-2-layers", "train", "bf16"): "bf16_unit blocked_upcast",
    ("gpt2-2-layers", "train", "f32"): "fuse_embedding fuse_cross_entropy flush_denormals "
    "alap_gradients",
}
ANYWHERE = [("convnet", "train", "f32"), ("bert-2-layers", "train", "f32")]
IN_QUICK = ("mlp-x100",)


def names():
    """All optimizations that can be turned off: passes, and what kernels and the engine do."""
    from poptorch import _C  # only here: other parts do not need it in this process

    # a pass may run several times: turned off, it does not run at all
    return list(dict.fromkeys([*_C.pipeline(), *(name for name, _ in _C.switches())]))


def places(known):
    """The switches to measure in each (workload, mode, number format).

    Args:
        known: names of all switches.
    """
    found = {case: [n for n in texts.split() if n in known] for case, texts in WHERE.items()}
    listed = {name for every in found.values() for name in every}
    for case in ANYWHERE:
        found[case] += [name for name in known if name not in listed]
    return found


def _chunks(plan):
    """(workload, mode, number format, some switches): what is measured side by side."""
    known = names()
    if plan.is_chosen:
        cases = {(w.name, mode, "f32"): known for w, mode in plan.cases()}
    else:
        cases = {case: off for case, off in places(known).items() if case[1] in plan.modes}
    for (name, mode, dtype), off in cases.items():
        if plan.quick and not plan.is_chosen and name not in IN_QUICK:
            continue
        for begin in range(0, len(off), AT_ONCE):
            yield workloads.find(name), mode, dtype, off[begin : begin + AT_ONCE]


def _measure(plan):
    def weight(chunk):
        return 1.0 + len(chunk[3])

    for workload, mode, dtype, off in plan.pace.each(_chunks(plan), weight):
        yield _rows(plan, workload, mode, dtype, off)


def _rows(plan, workload, mode, dtype, off):
    settings = [
        setting(workload, mode, backends.OURS, dtype=dtype, off=name) for name in ["", *off]
    ]
    with measure.processes(settings, pace=plan.pace) as started:
        measure.take_turns(started, plan.rounds, plan.block_s, plan.pace)
        for process in started:
            process.note("memory")
        full, *results = (process.result for process in started)
    rows = []
    for name, result in zip(off, results, strict=True):
        row = start_row(workload, mode, [full, result]) | {"switch": name}
        if dtype != "f32":
            row["workload"] += f" {dtype}"
        if "error" not in row:
            row |= {"ms": result.median_ms(), "all_ms": full.median_ms()}
            row["worth"] = ratio(row["ms"], row["all_ms"]) - 1
            row["worth_mb"] = result.figures["peak_mb"] - full.figures["peak_mb"]
            row["clean"] = min(result.undisturbed(), full.undisturbed())
        rows.append(row)
    return rows


PART = Part(
    "switches",
    "what each optimization is worth",
    COLUMNS,
    _measure,
    minutes=(8.0, 1.0),
    keys=("workload", "mode", "switch"),
)
