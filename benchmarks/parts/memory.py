"""Memory of a training step and of the process, and whether it grows."""

from benchmarks import backends, measure, workloads
from benchmarks.part import Part, ratio, setting, start_row
from benchmarks.table import MODE, WORKLOAD, Column

CALLS = {True: 200, False: 1000}  # whose growth is measured, by whether --quick was given
LEAST_S = 4.0
MOST_S = 30.0  # that they may take

COLUMNS = [
    WORKLOAD,
    MODE,
    Column("ours", "step MiB", ".2f"),
    Column("eager", "eager's", ".2f"),
    Column("tensors", "ratio", ".2f", 6),
    Column("process", "process MiB", ".0f"),
    Column("eager_process", "eager's", ".0f"),
    Column("peak", "ratio", ".2f", 6),
    Column("first_peak", "with first call", ".2f"),
    Column("growth", "growth MiB", ".1f"),
    Column("calls", "in calls", ".0f"),
]


def _measure(plan):
    for workload, mode in plan.timed(without=workloads.IN_LOOPS):
        settings = [setting(workload, mode, name) for name in (backends.OURS, "eager")]
        with measure.processes(settings, loaded=True, pace=plan.pace) as started:
            for process in started:
                process.ask("warm")
                process.ask("block", seconds=0.0, at_least=2)
                process.note("memory")
                process.note("tensors")
            seconds = min(MOST_S, max(LEAST_S, plan.pace.left_s()))
            plan.pace.tell(f"{workload.name} {mode}: growth")
            started[0].note("growth", calls=CALLS[plan.quick], seconds=seconds)
        ours, eager = (process.result.figures for process in started)
        row = start_row(workload, mode, [process.result for process in started])
        yield [row | _figures(ours, eager)]


def _figures(ours, eager):
    return {
        "ours": ours.get("tensors_mb"),
        "eager": eager.get("tensors_mb"),
        "tensors": ratio(ours.get("tensors_mb"), eager.get("tensors_mb")),
        "process": ours.get("peak_mb"),
        "eager_process": eager.get("peak_mb"),
        "peak": ratio(ours.get("peak_mb"), eager.get("peak_mb")),
        "first_peak": ratio(ours.get("first_peak_mb"), eager.get("first_peak_mb")),
        "growth": ours.get("growth_mb"),
        "calls": ours.get("growth_calls"),
        "report": ours.get("report"),
    }


PART = Part(
    "memory",
    "memory of a step and of the process, compared with eager's",
    COLUMNS,
    _measure,
    minutes=(5.0, 0.8),
)
