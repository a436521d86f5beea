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
    for workload in plan.named(*BOUND_BY_PRODUCTS):
        for mode in plan.modes:
            settings = [
                setting(workload, mode, backend, threads=threads)
                for backend in (backends.OURS, "floor")
                for threads in (1, 2)
            ]
            results = measure.measure(settings, plan.rounds, plan.block_s)
            row = start_row(workload, mode, results)
            if "error" not in row:
                one, two, floor_one, floor_two = (result.median_ms() for result in results)
                row |= {"one": one, "two": two, "gain": ratio(one, two)}
                row["floor_gain"] = ratio(floor_one, floor_two)
            yield [row]


PART = Part("threads", "two threads against one", COLUMNS, _measure)
