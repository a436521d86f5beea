"""Tables: columns of figures from rows, which are dictionaries that a file can hold."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Column:
    """One figure of each row."""

    key: str
    head: str
    form: str = ".2f"  # how a number is written
    width: int = 9


WORKLOAD, MODE = Column("workload", "workload", "", -14), Column("mode", "mode", "", -5)


def cell(row, column):
    """The text of a figure; nothing was measured where there is none."""
    value = row.get(column.key)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return format(value, column.form) if isinstance(value, int | float) else str(value)


def line(columns, texts):
    """Texts set in columns; words stand left, figures right."""
    cells = []
    for column, text in zip(columns, texts, strict=True):
        width = max(abs(column.width), len(column.head))
        cells.append(text.ljust(width) if column.width < 0 else text.rjust(width))
    return "  ".join(cells).rstrip()


def head(columns):
    """The first line."""
    return line(columns, [column.head for column in columns])


def row_line(columns, row):
    """A row, or what went wrong."""
    if row.get("error"):
        names = [cell(row, c) for c in columns if isinstance(row.get(c.key), str)]
        return "  ".join(names) + f"  failed: {row['error'][:110]}"
    return line(columns, [cell(row, column) for column in columns])


def markdown(columns, rows):
    """The same as a table of a document."""
    lines = [[column.head for column in columns]]
    lines.append(["---" if column.width < 0 else "---:" for column in columns])
    lines += [[cell(row, column) for column in columns] for row in rows if not row.get("error")]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


class Store:
    """Rows of each part, in a file. Measuring a part of it again replaces those rows only.

    Each row names the machine and the version that it was measured with; rows of several machines
    are kept next to each other. ``machines`` names them, the last one that measured first.
    """

    def __init__(self, path):
        self.path = Path(path)
        self.content = self._read()

    def _read(self):
        if self.path.exists():
            return json.loads(self.path.read_text())
        return {"machines": [], "parts": {}}

    def machines(self):
        """Those with rows, the last one that measured first."""
        return self.content["machines"]

    def rows(self, part, machine=None):
        """Rows of a part; none if it has not been measured."""
        rows = self.content["parts"].get(part, [])
        return [row for row in rows if machine is None or row["machine"] == machine]

    def add(self, part, rows, origin, keys=("workload", "mode")):
        """Puts rows in the place of those with equal ``keys`` of this machine; writes the file.

        Args:
            part: its name.
            rows: of a group that belongs together.
            origin: what each row gets: at least ``machine``.
            keys: columns.
        """
        rows = [{key: value for key, value in row.items() if key != "samples"} | origin
                for row in rows]

        def group(row):
            return row["machine"], *(row.get(key) for key in keys)

        self.content = self._read()  # another run may have written to it
        renewed = {group(row) for row in rows}
        kept = [row for row in self.rows(part) if group(row) not in renewed]
        self.content["parts"][part] = kept + rows
        others = [name for name in self.machines() if name != origin["machine"]]
        self.content["machines"] = [origin["machine"], *others]
        self._write()

    def _write(self):
        """All or nothing: whoever interrupts it loses no row."""
        lines = [f' "machines": {json.dumps(self.machines())}']
        for part, rows in sorted(self.content["parts"].items()):
            texts = ",\n   ".join(json.dumps(row) for row in rows)
            lines.append(f'  "{part}": [\n   {texts}\n  ]')
        text = "{\n" + lines[0] + ",\n \"parts\": {\n" + ",\n".join(lines[1:]) + "\n }\n}\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(f".{os.getpid()}.new")
        new.write_text(text)
        new.replace(self.path)
