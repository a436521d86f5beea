"""Reports in a form that compresses well: columns, a table of strings, rounded numbers."""

import itertools

# What the page shows; a report has more.
SHOWN = ["title", "target", "clock_hz", "tiles", "tile_bytes", "fits", "cycles", "interval",
         "seconds", "throughput", "host", "options", "memory", "ops"]
CHIP = ["ipu", "categories", "peak_bytes", "peak_without_gaps", "mean_bytes", "peak_step"]
# Of by_tile: less than a thousandth of a tile, so invisible in a picture.
TILE_GRAIN_BYTES = 256


class Strings:
    """Numbers strings in the order in which they first occur."""

    def __init__(self):
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of a string."""
        return self._numbers.setdefault(text, len(self._numbers))

    def table(self) -> list[str]:
        """All strings, by their numbers."""
        return list(self._numbers)


def pack(reports: list[dict]) -> dict:
    """``{"strings": [...], "reports": [...]}``; ``unpack.js`` reads it.

    In a packed report a list of dicts is ``{"rows": n, "columns": {key: column}}``, a column of
    strings is ``{"text": [numbers of strings]}``, numbers in lists are rounded, and the rows of the
    timeline are columns with gaps and durations in whole cycles in place of begins and ends.
    """
    strings = Strings()
    packed = [_packed_report(report, strings) for report in reports]
    return {"strings": strings.table(), "reports": packed}


def _packed_report(report: dict, strings: Strings) -> dict:
    timeline = report["timeline"]
    # Each IPU by itself: its steps are a table of their own.
    packed = {key: _packed(report[key], strings) for key in SHOWN}
    packed["schedule"] = {"micro_batches": report["schedule"]["micro_batches"]}
    packed["ipus"] = [_packed(_compact(ipu), strings) for ipu in report["ipus"]]
    packed["timeline"] = timeline | {"rows": _packed_rows(timeline["rows"], strings)}
    return packed


def _compact(ipu: dict) -> dict:
    """The memory of an IPU. Steps name their operation by its number alone; values are in the order
    of steps, in which they resemble their neighbours."""
    steps = [{key: step[key] for key in ("id", "live", "temporary", "tile_bytes")}
             for step in ipu["steps"]]
    values = sorted(ipu["values"], key=lambda value: (value["first"], value["last"]))
    by_tile = [-(-used // TILE_GRAIN_BYTES) * TILE_GRAIN_BYTES for used in ipu["by_tile"]]
    return {key: ipu[key] for key in CHIP} | {"steps": steps, "values": values, "by_tile": by_tile}


def _packed(value, strings: Strings):
    if isinstance(value, dict):
        return {key: _packed(one, strings) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return _packed_list(list(value), strings)
    return value


def _packed_list(values: list, strings: Strings):
    if values and all(isinstance(value, dict) for value in values):
        keys = dict.fromkeys(itertools.chain.from_iterable(values))
        columns = {key: _packed_list([row.get(key) for row in values], strings) for key in keys}
        return {"rows": len(values), "columns": columns}
    if values and all(isinstance(value, str) for value in values):
        return {"text": [strings.number(value) for value in values]}
    return [_rounded(value) if type(value) in (int, float) else _packed(value, strings)
            for value in values]


def _rounded(number: float) -> float | int:
    """Four digits, as charts and tables show three. Integers below a million (ids, counts, bytes of
    a tile) are exact."""
    if isinstance(number, int) and abs(number) < 1_000_000:
        return number
    short = float(f"{number:.4g}")
    return int(short) if short.is_integer() else short


def _packed_rows(rows: list, strings: Strings) -> dict:
    """Rows by IPU, track and time. Gaps are mostly 0 and durations repeat."""
    found = sorted(rows, key=lambda row: (row[0], row[6], row[4], row[5]))
    gaps, durations, end, lane = [], [], 0, None
    for ipu, _, _, _, begins, ends, track in found:
        if (ipu, track) != lane:
            lane, end = (ipu, track), 0
        begin = round(begins)
        gaps.append(begin - end)
        end = round(ends)
        durations.append(end - begin)
    return {"ipu": [row[0] for row in found], "kind": [strings.number(row[1]) for row in found],
            "task": [strings.number(row[2] or "") for row in found],
            "micro_batch": [row[3] for row in found],
            "gap": gaps, "duration": durations,
            "track": [strings.number(row[6]) for row in found]}
