"""What is to be reached, what was measured, and with which command: the first table of the page."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import backends
from benchmarks.part import mean_and_worst
from benchmarks.parts import speed
from benchmarks.table import Column

COLUMNS = [
    Column("what", "to be reached", "", -40),
    Column("limit", "bar", "", 8),
    Column("text", "measured", "", -40),
    Column("reached", "reached", "", -7),
    Column("command", "command", "", -30),
]
OPTIMAL_SHARE = 0.95  # of the speed of the best peer, for each workload
TINY = "mlp"
LEAST_PROCESS_MB = 8  # of eager's: below, allocators and caches of code are all that is measured


@dataclass(frozen=True)
class Bar:
    """One limit: ``measure`` gives (figure, words about it) of the rows of a part, or None."""

    what: str
    limit: float
    part: str
    measure: Callable[[list], tuple | None]
    is_most: bool = False  # the figure may be at most the limit; else it must be at least that
    command: str = ""

    def row(self, rows):
        """What the table says about it."""
        found = self.measure([row for row in rows if not row.get("error")])
        row = {"what": self.what, "limit": f"{'<=' if self.is_most else '>='} {self.limit:g}"}
        row["command"] = f"`python -m benchmarks {self.command or self.part}`"
        if found is None:
            return row | {"text": "not measured", "reached": "-"}
        figure, words = found
        is_reached = figure <= self.limit if self.is_most else figure >= self.limit
        return row | {"text": f"{figure:.2f} ({words})", "reached": "yes" if is_reached else "no"}


def _place(row):
    return f"{row['workload']} {row['mode']}" + (f" {row['dtype']}" if "dtype" in row else "")


def _extreme(key, worst, suits=lambda row: True):
    """The worst figure of a column, ``worst`` being max or min, and whose it is."""

    def measure(rows):
        rows = [row for row in rows if row.get(key) is not None and suits(row)]
        if not rows:
            return None
        row = worst(rows, key=lambda row: row[key])
        return row[key], f"worst of {len(rows)}: {_place(row)}"

    return measure


def _mean(mode, kind):
    """Geometric mean of how many times as fast as a kind of peer."""

    def measure(rows):
        values = speed.counted(rows, mode).get(kind)
        if not values:
            return None
        mean, worst = mean_and_worst(values, min)
        return mean, f"mean of {len(values)}, worst {worst} {values[worst]:.2f}"

    return measure


def _beside_best(mode):
    """The least speed compared with the best of all peers of a workload.

    Without the tiny network, which has a bar of its own.
    """

    def measure(rows):
        worst = {}
        for kind, values in speed.counted(rows, mode).items():
            for workload, value in values.items():
                if workload == TINY:
                    continue
                worst[workload] = min((value, kind), worst.get(workload, (value, kind)))
        if not worst:
            return None
        workload = min(worst, key=worst.get)
        value, kind = worst[workload]
        return value, f"worst of {len(worst)}: {workload} compared with {kind}"

    return measure


def _tiny_inference(rows):
    """Microseconds of a call, and those of ONNX Runtime's in the same run."""
    times = {row["backend"]: 1000 * row["ms"] for row in rows
             if _is(TINY, "infer")(row) and "ms" in row}
    if backends.OURS not in times:
        return None
    other = times.get("onnxruntime")
    beside = "" if other is None else f"; ONNX Runtime's {other:.1f} in this run"
    return times[backends.OURS], f"{TINY} infer{beside}"


def _is(workload=None, mode=None, backend=None):
    wanted = {"workload": workload, "mode": mode, "backend": backend}
    wanted = {key: value for key, value in wanted.items() if value}
    return lambda row: all(row.get(key) == value for key, value in wanted.items())


def _growth_of_depth(rows):
    """Time a layer of the deepest network over that of the least deep one, for training."""
    layers = {int(row["workload"].removeprefix("narrow-")): row["per_layer"]
              for row in rows if row.get("per_layer") and row["mode"] == "train"}
    if len(layers) < 2:
        return None
    least, most = min(layers), max(layers)
    return layers[most] / layers[least], f"a layer of {most} compared with a layer of {least}"


def _growth(rows):
    """The most that a process has grown by in the most calls."""
    rows = [row for row in rows if row.get("growth") is not None]
    full = [row for row in rows if row.get("calls", 0) >= 1000]
    return _extreme("growth", max)(full or rows)


def _has_weight(row):
    return row.get("eager_process", 0) >= LEAST_PROCESS_MB


def _step(mode):
    """Rows of a mode, without the tiny network, whose step takes some KiB."""
    is_wanted = _is(mode=mode)
    return lambda row: is_wanted(row) and _has_weight(row)


def _gru(rows):
    value = speed.ratios(rows, "train").get("eager", {}).get("gru")
    return None if value is None else (value, "gru train")


def _speed_bars():
    command = "speed --peers"
    for mode, kind, limit in [
        ("train", "eager", 1.7), ("train", "torch.compile", 1.5), ("train", "tuned eager", 1.35),
        ("infer", "torch.compile", 1.2), ("infer", "ONNX Runtime", 1.05),
    ]:
        name = {"train": "training", "infer": "inference"}[mode]
        yield Bar(f"{name}: times as fast as {kind}", limit, "speed", _mean(mode, kind),
                  command=command)
    for mode, name in (("train", "training"), ("infer", "inference")):
        yield Bar(f"{name}: none slower than the best peer", OPTIMAL_SHARE, "speed",
                  _beside_best(mode), command=command)
    # What ONNX Runtime took on the machine that the bar is of.
    yield Bar("tiny network: us of a call of inference", 21.0, "speed", _tiny_inference, True,
              command)
    for workload, limit in (("bert", 1.15), ("resnet50", 1.25)):
        yield Bar(f"{workload} training over its floor", limit, "speed",
                  _extreme("over_floor", max, _is(workload, "train", "poptorch")), True)


BARS = [
    *_speed_bars(),
    Bar("GRU training: times as fast as eager", 2.0, "speed", _gru),
    Bar("tiny network: us an iteration beyond its products", 15.0, "overhead",
        _extreme("beyond", max, _is(mode="train")), True),
    Bar("small networks: us of Python a call", 60.0, "overhead", _extreme("python", max), True),
    Bar("first call over bare capture", 1.6, "first-call", _extreme("over_tracer", max), True),
    Bar("first call over torch.compile's cold one", 0.1, "first-call", _extreme("of_cold", max),
        True, "first-call --peers"),
    Bar("first call is linear in the layers", 1.2, "first-call", _growth_of_depth, True),
    Bar("memory of a training step over eager's", 0.65, "memory",
        _extreme("tensors", max, _step("train")), True),
    Bar("memory of an inference over eager's", 0.65, "memory",
        _extreme("tensors", max, _step("infer")), True),
    Bar("memory of the process over eager's", 1.05, "memory",
        _extreme("peak", max, _has_weight), True),
    Bar("MiB that a process grows by in 1,000 calls", 1.0, "memory", _growth, True),
    Bar("16-bit over float32", 1.5, "half", _extreme("over_f32", max), True),
    Bar("two threads over one", 1.7, "threads", _extreme("gain", min)),
    Bar("loss curve: distance from eager's over their spread", 4.0, "losses",
        _extreme("times", max), True),
]


def rows(store, machine):
    """A row for each bar."""
    return [bar.row(store.rows(bar.part, machine)) for bar in BARS]
