"""What each optimization is worth: step times with it turned off."""

from benchmarks import backends, measure
from benchmarks.part import Part, ratio, setting, start_row
from benchmarks.table import MODE, WORKLOAD, Column

AT_ONCE = 3  # variants beside the full program that share the memory

COLUMNS = [
    WORKLOAD,
    MODE,
    Column("switch", "turned off", "", -24),
    Column("ms", "step ms", ".3f", 10),
    Column("all_ms", "all on", ".3f", 10),
    Column("worth", "worth", "+.1%", 8),
]


def names():
    """All optimizations that can be turned off: passes, and what kernels and the engine do."""
    from poptorch import _C  # only here: other parts do not need it in this process

    # a pass may run several times: turned off, it does not run at all
    return list(dict.fromkeys([*_C.pipeline(), *(name for name, _ in _C.switches())]))


def _measure(plan):
    for workload, mode in plan.cases():
        off, rows = names(), []
        for begin in range(0, len(off), AT_ONCE):
            rows += _rows(plan, workload, mode, off[begin : begin + AT_ONCE])
        yield rows


def _rows(plan, workload, mode, off):
    settings = [setting(workload, mode, backends.OURS, off=name) for name in ["", *off]]
    results = measure.measure(settings, plan.rounds, plan.block_s)
    rows, full = [], results[0]
    for name, result in zip(off, results[1:], strict=True):
        row = start_row(workload, mode, [full, result]) | {"switch": name}
        if "error" not in row:
            row |= {"ms": result.median_ms(), "all_ms": full.median_ms()}
            row["worth"] = ratio(row["ms"], row["all_ms"]) - 1
        rows.append(row)
    return rows


PART = Part("switches", "what each optimization is worth", COLUMNS, _measure)
