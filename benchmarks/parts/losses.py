"""Loss curves: how far ours lies from eager's, beside how far eager's own lie from each other."""

from benchmarks import backends, measure
from benchmarks.part import Part, ratio, setting, start_row
from benchmarks.table import MODE, WORKLOAD, Column

STEPS = 20
NAMES = (
    "convnet",
    "resnet18",
    "resnet50",
    "bert",
    "bert-2-layers",
    "gpt2",
    "gpt2-2-layers",
    "lstm",
    "gru",
    "elementwise",
)

COLUMNS = [
    WORKLOAD,
    MODE,
    Column("first", "first loss", ".4f"),
    Column("last", "last loss", ".4f"),
    Column("deviation", "ours from eager", ".1e"),
    Column("spread", "eager's spread", ".1e"),
    Column("times", "ratio", ".2f", 6),
]


def compare(ours, eager):
    """Largest distance of ours from the middle of eager's curves, and their largest spread."""
    deviation = spread = 0.0
    for loss, others in zip(ours, zip(*eager, strict=True), strict=True):
        deviation = max(deviation, abs(loss - sum(others) / len(others)))
        spread = max(spread, max(others) - min(others))
    return deviation, spread


def _measure(plan):
    names = ["eager", "eager tuned", "eager nhwc"]
    for workload in plan.named(*NAMES):
        kinds = [name for name in names if backends.find(name).suits(workload, "train")]
        settings = [
            setting(workload, "train", name, threads=threads, learns=True)
            for name in [backends.OURS, *kinds]
            for threads in (1, 2)
        ]
        results, curves = [], []
        for one in settings:  # one process at a time: the networks need not fit in memory at once
            with measure.Process(one) as process:
                curves.append(process.ask("losses", steps=STEPS).get("losses", []))
            results.append(process.result)
        row = start_row(workload, "train", results)
        if "error" not in row:
            deviation, spread = compare(curves[1], curves[2:])
            row |= {"first": curves[1][0], "last": curves[1][-1]}
            row |= {"deviation": deviation, "spread": spread, "times": ratio(deviation, spread)}
            row["curves"] = curves
        yield [row]


PART = Part("losses", f"loss curves over {STEPS} steps", COLUMNS, _measure)
