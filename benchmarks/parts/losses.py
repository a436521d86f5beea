"""Loss curves: the distance of ours from eager's, and of eager's own from each other.

Eager's are few and much alike, since they run the same libraries. What roundings do to a curve is
seen where they start from weights that differ by one.
"""

import os

from benchmarks import backends, measure
from benchmarks.part import Part, ratio, setting, start_row
from benchmarks.table import MODE, WORKLOAD, Column

STEPS = 20
NUDGES = (1, 2)
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
    Column("bits", "bits by threads", "", -15),
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
    for workload, _ in plan.timed(NAMES, modes=["train"]):
        kinds = [name for name in names if backends.find(name).suits(workload, "train")]
        settings = [
            setting(workload, "train", name, threads=threads, learns=True)
            for threads in (1, 2)
            for name in [backends.OURS, *kinds]
        ] + [
            setting(workload, "train", "eager", threads=2, learns=True, nudge=nudge)
            for nudge in NUDGES
        ]
        results, curves = _curves(settings, plan.pace)
        row = start_row(workload, "train", results)
        if "error" not in row:
            single, ours = (curves.pop(at) for at in (0, len(kinds)))
            deviation, spread = compare(ours, curves)
            row |= {"first": ours[0], "last": ours[-1]}
            row |= {"deviation": deviation, "spread": spread, "times": ratio(deviation, spread)}
            row["bits"] = "equal" if single == ours else "differ"
        yield [row]


def _curves(settings, pace):
    """Results and losses of each; as many at once as have a core for each of their threads."""
    results, curves, cores = [], [], os.cpu_count()
    while settings:
        count = max(1, cores // settings[0].threads)
        group = [s for s in settings[:count] if s.threads == settings[0].threads]
        settings = settings[len(group):]
        pace.tell(", ".join(one.label() for one in group))
        started = [measure.Process(one) for one in group]
        try:
            for process in started:
                process.send("losses", steps=STEPS)
            for process in started:
                curves.append(process.receive().get("losses", []))
                results.append(process.result)
        finally:
            for process in started:
                process.close()
    return results, curves


PART = Part(
    "losses", f"loss curves over {STEPS} steps", COLUMNS, _measure, minutes=(7.0, 1.0)
)
