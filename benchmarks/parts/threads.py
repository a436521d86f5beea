"""One thread against two, on what products and convolutions bound."""

from benchmarks import backends, measure
from benchmarks.part import Part, ratio, setting, start_row
from benchmarks.table import MODE, WORKLOAD, Column

BOUND_BY_PRODUCTS = (
    "convnet",
    "resnet18",
    "resnet50",
    "bert",
    "bert-2-layers",
    "gpt2",
    "gpt2-2-layers",
)

COLUMNS = [
    WORKLOAD,
    MODE,
    Column("one", "1 thread ms", ".2f"),
    Column("two", "2 threads", ".2f"),
    Column("gain", "gain", ".2f", 6),
    Column("floor_gain", "floor's gain", ".2f"),
]


def _measure(plan):
    for workload, mode in plan.timed(BOUND_BY_PRODUCTS):
        settings = [
            setting(workload, mode, backend, threads=threads)
            # a floor tries every layout: of large networks that takes longer than all the rest
            for backend in ((backends.OURS,) if workload.is_large else (backends.OURS, "floor"))
            for threads in (1, 2)
        ]
        results = measure.measure(settings, plan.rounds, plan.block_s, plan.pace)
        row = start_row(workload, mode, results)
        if "error" not in row:
            one, two, *floors = (result.median_ms() for result in results)
            row |= {"one": one, "two": two, "gain": ratio(one, two)}
            row["clean"] = min(result.undisturbed() for result in results)
            row["floor_gain"] = ratio(*floors) if floors else None
        yield [row]


PART = Part("threads", "two threads against one", COLUMNS, _measure, minutes=(4.0, 0.8))
