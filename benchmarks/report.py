"""Writes the measured tables to benchmarks/results/, one page for each.

docs/internals/performance.md explains them. A table without measurements is not written.
"""

from functools import partial
from pathlib import Path

from benchmarks import backends, bars, parts, table
from benchmarks.part import mean_and_worst, ratio
from benchmarks.parts import speed
from benchmarks.table import MODE, WORKLOAD, Column

FIGURES = "benchmarks/figures.json"
RESULTS = Path(__file__).parent / "results"
OPS_SHOWN = 8
LEAST_SHARE = 0.01  # of a step, for an op to be shown
LEAST_WORTH = 0.015  # of a step, for a switch to differ from noise
LEAST_MIB = 2.0  # of a process
PLACES_SHOWN = 4

ROOFLINE = [
    WORKLOAD,
    MODE,
    Column("gflop", "GFLOP", ".2f"),
    Column("mb", "MB touched", ".0f"),
    Column("floor", "floor ms", ".2f"),
    Column("traffic", "traffic ms", ".2f"),
    Column("ms", "achieved ms", ".2f"),
    Column("over_floor", "x floor", ".2f"),
    Column("rate", "GF/s", ".0f"),
]
WORTH = [
    Column("switch", "turned off", "", -24),
    Column("places", "costs on", "", -60),
]
_BESIDE_ATEN = [
    Column("mean", "times as fast"),
    Column("least", "least"),
    Column("worst", "of", "", -30),
]
PRODUCTS = [
    Column("source", "source", "", -30),
    Column("dtype", "dtype", "", -5),
    Column("count", "products", "d"),
    *_BESIDE_ATEN,
]
CONVOLUTIONS = [
    Column("layer", "layer", "", -28),
    Column("computes", "computes", "", -8),
    Column("layout", "images", "", -13),
    Column("count", "batches", "d"),
    *_BESIDE_ATEN,
]


def _by_case(rows, backend):
    return {
        (row["workload"], row["mode"]): row
        for row in rows
        if row.get("backend") == backend and not row.get("error")
    }


def _copy_rate(store, machine):
    """GB/s of a copy by all threads; None if it was not measured."""
    return max((row["copy"] for row in store.rows("machine", machine)), default=None)


def roofline(store, machine):
    """FLOPs, bytes, what they take at least, and what they took."""
    rows = store.rows("speed", machine)
    floors, touched, out = _by_case(rows, "floor"), {}, []
    for row in store.rows("profile", machine):
        case = row["workload"], row["mode"]
        touched[case] = touched.get(case, 0.0) + row.get("mb", 0.0)
    for case, ours in _by_case(rows, backends.OURS).items():
        floor, megabytes = floors.get(case), touched.get(case)
        row = {"workload": case[0], "mode": case[1], "ms": ours["ms"], "mb": megabytes}
        row["traffic"] = ratio(megabytes, _copy_rate(store, machine))
        if floor:
            flops = floor["floor"]["totals"]["flops"]
            row |= {"gflop": flops / 1e9, "floor": floor["ms"], "rate": flops / ours["ms"] / 1e6}
            row["over_floor"] = ratio(1.0, floor.get("of_ours"))
        out.append(row)
    return table.markdown(ROOFLINE, out) if out else ""


def compared(store, machine):
    """How many times as fast as each kind of peer, and the means."""
    rows, texts = store.rows("speed", machine), []
    for mode in ("train", "infer"):
        kinds = speed.ratios(rows, mode)
        if not kinds:
            continue
        columns = [WORKLOAD, Column("ms", "ours ms", ".3f"), Column("clean", "clean samples", "")]
        columns += [Column(kind, kind) for kind in kinds]
        ours = {w: row for (w, m), row in _by_case(rows, backends.OURS).items() if m == mode}
        lines = [
            {"workload": workload, "ms": row["ms"], "clean": row.get("clean")}
            | {kind: values.get(workload) for kind, values in kinds.items()}
            for workload, row in ours.items()
        ]
        texts.append(f"{'Training' if mode == 'train' else 'Inference'}:\n")
        texts.append(table.markdown(columns, lines) + "\n")
    texts += [f"- {line}" for line in speed.conclude(rows)]
    return "\n".join([*texts, *_failures(rows)])


def profiles(store, machine):
    """The dearest ops of each workload."""
    part, counts, shown = parts.find("profile"), {}, []
    for row in store.rows("profile", machine):
        case = row["workload"], row["mode"]
        counts[case] = counts.get(case, 0) + 1
        if counts[case] <= OPS_SHOWN and row.get("share", 0.0) >= LEAST_SHARE:
            shown.append(row)
    return table.markdown(part.columns, shown) if shown else ""


def _worth(row):
    """What a switch is worth at a place: words, and a figure to sort by; None if nothing."""
    time, memory = row.get("worth") or 0.0, row.get("worth_mb") or 0.0
    words = []
    if abs(time) >= LEAST_WORTH:
        words.append(f"{time:+.1%}")
    if memory >= LEAST_MIB:
        words.append(f"{memory:+.0f} MiB")
    place = f"{row['workload']} {row['mode']}"
    return (time, memory, f"{place} {' '.join(words)}") if words else None


def worth(store, machine):
    """What is lost without each optimization, where it is most."""
    places, tried = {}, {}
    for row in store.rows("switches", machine):
        found = places.setdefault(row["switch"], [])
        if row.get("error"):
            continue
        tried.setdefault(row["switch"], []).append(f"{row['workload']} {row['mode']}")
        worth = _worth(row)
        found += [worth] if worth else []
    rows = []
    for switch, found in sorted(places.items(), key=lambda item: -max(item[1], default=(0,))[0]):
        best = [text for *_, text in sorted(found, reverse=True)[:PLACES_SHOWN]]
        nothing = f"within the noise on {', '.join(tried.get(switch, ['nothing']))}"
        rows.append({"switch": f"`{switch}`", "places": ", ".join(best) or nothing})
    return table.markdown(WORTH, rows) if rows else ""


def products(store, machine):
    """How many times as fast as ATen the products of each architecture are."""
    return _beside_aten(store.rows("gemm", machine), ("source", "dtype"), PRODUCTS,
                        lambda row: f"{row['form']} {row['sizes']}")


def convolutions(store, machine):
    """The same of each layer's convolutions and gradients, over the sizes of the batch."""
    return _beside_aten(store.rows("convolutions", machine), ("layer", "computes", "layout"),
                        CONVOLUTIONS, lambda row: f"a batch of {row['batch']}, {row['algorithm']}")


def _beside_aten(rows, keys, columns, case):
    """A line for the rows that agree in the keys: their mean ratio, and which is the least."""
    ratios, lines = {}, []
    for row in rows:
        ratios.setdefault(tuple(row[key] for key in keys), {})[case(row)] = row["ratio"]
    for values, found in ratios.items():
        mean, worst = mean_and_worst(found, min)
        lines.append({**dict(zip(keys, values)), "count": len(found), "mean": mean,
                      "least": found[worst], "worst": worst})
    return table.markdown(columns, lines) if lines else ""


def summary(store, machine):
    """Bar by bar."""
    return table.markdown(bars.COLUMNS, bars.rows(store, machine))


def _plain(name, store, machine):
    """A part's rows as they are."""
    part, rows = parts.find(name), store.rows(name, machine)
    text = table.markdown(part.columns, rows) if rows else ""
    return "\n".join([text, "", *_failures(rows)]).rstrip()


def _failures(rows):
    failures = dict.fromkeys(
        f"- {row['workload']} {row['mode']} {row.get('backend', '')}: {row['error'][:200]}"
        for row in rows
        if row.get("error")
    )
    return list(failures)


# Tables that combine or shorten the rows of parts: how they are made, and from which parts.
TABLES = {
    "bars": (summary, tuple(dict.fromkeys(bar.part for bar in bars.BARS))),
    "roofline": (roofline, ("speed", "profile", "machine")),
    "compared": (compared, ("speed",)),
    "profile": (profiles, ("profile",)),
    "switches": (worth, ("switches",)),
    "gemm": (products, ("gemm",)),
    "convolutions": (convolutions, ("convolutions",)),
}
TITLES = {
    "bars": "Goals and the worst result of each",
    "roofline": "FLOPs, bytes and floors of the workloads",
    "compared": "Speed compared with other ways of running the same networks",
} | {part.name: part.summary for part in parts.PARTS if part.name != "speed"}


def _of_machine(name, store, machine):
    """A table of the measurements on one machine, below a line with its name; or nothing."""
    make, sources = TABLES.get(name, (partial(_plain, name), (name,)))
    rows = [row for source in sources for row in store.rows(source, machine)]
    body = make(store, machine) if rows else ""
    versions = sorted({row["version"] for row in rows})
    return f"On {machine}; poptorch {', '.join(versions)}:\n\n{body}" if body else ""


def page(name, store):
    """The page of a table, with a table for each machine; empty if nothing was measured."""
    bodies = [_of_machine(name, store, machine) for machine in store.machines()]
    bodies = [body.strip() for body in bodies if body]
    if not bodies:
        return ""
    title = TITLES[name][0].upper() + TITLES[name][1:]
    source = ("Generated by `python -m benchmarks --report`. Do not edit.\n"
              "[performance.md](../../docs/internals/performance.md) explains the columns.")
    return "\n\n".join([f"# {title}", source, *bodies]) + "\n"


def write(store, folder=RESULTS):
    """Writes the pages; returns their folder."""
    folder.mkdir(exist_ok=True)
    for name in TITLES:
        if text := page(name, store):
            (folder / f"{name}.md").write_text(text)
    return folder
