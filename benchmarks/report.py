"""Puts measured tables into docs/internals/performance.md, between its markers.

The text around them is written by hand. A table of which nothing has been measured stays as it is.
"""

import re
from pathlib import Path

from benchmarks import backends, parts, table
from benchmarks.part import ratio
from benchmarks.parts import speed
from benchmarks.table import MODE, WORKLOAD, Column

PAGE = Path(__file__).parent.parent / "docs" / "internals" / "performance.md"
BLOCK = re.compile(r"<!-- table: ([\w-]+) -->\n.*?<!-- end -->\n", re.DOTALL)
OPS_SHOWN = 8
LEAST_SHARE = 0.01  # of a step, for an op to be shown
LEAST_WORTH = 0.015  # of a step, for a switch to be told apart from noise
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


def _by_case(rows, backend):
    return {
        (row["workload"], row["mode"]): row
        for row in rows
        if row.get("backend") == backend and not row.get("error")
    }


def _copy_rate(store):
    """GB/s of a copy by all threads; None if it was not measured."""
    return max((row["copy"] for row in store.rows("machine")), default=None)


def roofline(store):
    """FLOPs, bytes, what they take at least, and what they took."""
    rows = store.rows("speed")
    floors, touched, out = _by_case(rows, "floor"), {}, []
    for row in store.rows("profile"):
        case = row["workload"], row["mode"]
        touched[case] = touched.get(case, 0.0) + row.get("mb", 0.0)
    for case, ours in _by_case(rows, backends.OURS).items():
        floor, megabytes = floors.get(case), touched.get(case)
        row = {"workload": case[0], "mode": case[1], "ms": ours["ms"], "mb": megabytes}
        row["traffic"] = ratio(megabytes, _copy_rate(store))
        if floor:
            flops = floor["floor"]["totals"]["flops"]
            row |= {"gflop": flops / 1e9, "floor": floor["ms"], "rate": flops / ours["ms"] / 1e6}
            row["over_floor"] = ours["ms"] / floor["ms"]
        out.append(row)
    return table.markdown(ROOFLINE, out) if out else ""


def compared(store):
    """How many times as fast as each kind of peer, and the means."""
    rows, texts = store.rows("speed"), []
    for mode in ("train", "infer"):
        kinds = speed.ratios(rows, mode)
        if not kinds:
            continue
        columns = [WORKLOAD, Column("ms", "ours ms", ".3f")]
        columns += [Column(kind, kind) for kind in kinds]
        ours = {w: row for (w, m), row in _by_case(rows, backends.OURS).items() if m == mode}
        lines = [
            {"workload": workload, "ms": row["ms"]}
            | {kind: values.get(workload) for kind, values in kinds.items()}
            for workload, row in ours.items()
        ]
        texts.append(f"{'Training' if mode == 'train' else 'Inference'}:\n")
        texts.append(table.markdown(columns, lines) + "\n")
    texts += [f"- {line}" for line in speed.conclude(rows)]
    return "\n".join(texts)


def profiles(store):
    """The dearest ops of each workload."""
    part, counts, shown = parts.find("profile"), {}, []
    for row in store.rows("profile"):
        case = row["workload"], row["mode"]
        counts[case] = counts.get(case, 0) + 1
        if counts[case] <= OPS_SHOWN and row.get("share", 0.0) >= LEAST_SHARE:
            shown.append(row)
    return table.markdown(part.columns, shown) if shown else ""


def worth(store):
    """What is lost without each optimization, where it is most."""
    places = {}
    for row in store.rows("switches"):
        found = places.setdefault(row["switch"], [])
        if row.get("worth", 0.0) >= LEAST_WORTH:
            found.append((row["worth"], f"{row['workload']} {row['mode']} {row['worth']:+.1%}"))
    rows = []
    for switch, found in sorted(places.items(), key=lambda item: -max(item[1], default=(0,))[0]):
        best = [text for _, text in sorted(found, reverse=True)[:PLACES_SHOWN]]
        rows.append({"switch": f"`{switch}`", "places": ", ".join(best) or "within the noise"})
    return table.markdown(WORTH, rows) if rows else ""


def machine(store):
    """What the figures were measured on."""
    facts = store.content["machine"]
    lines = [f"Measured on: {', '.join(f'{key} {value}' for key, value in facts.items())}.\n"]
    lines.append(_plain("machine", store))
    return "\n".join(lines) if facts else ""


def _plain(name, store):
    """A part's rows as they are."""
    part, rows = parts.find(name), store.rows(name)
    text = table.markdown(part.columns, rows) if rows else ""
    failures = [row for row in rows if row.get("error")]
    notes = [f"- {row['workload']} {row['mode']}: {row['error'][:200]}" for row in failures]
    return "\n".join([text, "", *notes]).rstrip()


TABLES = {
    "machine": machine,
    "roofline": roofline,
    "compared": compared,
    "profile": profiles,
    "switches": worth,
}


def filled(text, store):
    """The document with the tables of the store in it."""

    def put(match):
        name = match.group(1)
        body = TABLES[name](store) if name in TABLES else _plain(name, store)
        return f"<!-- table: {name} -->\n\n{body}\n\n<!-- end -->\n" if body else match.group(0)

    return BLOCK.sub(put, text)


def write(store, page=PAGE):
    """Writes the document; returns its path."""
    page.write_text(filled(page.read_text(), store))
    return page
