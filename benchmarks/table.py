"""Tables: columns of figures from rows, which are dictionaries that a file can hold."""

import json
import math
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
    """Rows of each part, in a file. Measuring a part of it again replaces those rows only."""

    def __init__(self, path):
        self.path = Path(path)
        self.content = {"machine": {}, "parts": {}}
        if self.path.exists():
            self.content = json.loads(self.path.read_text())

    def rows(self, part):
        """Rows of a part; none if it has not been measured."""
        return self.content["parts"].get(part, [])

    def add(self, part, rows, machine):
        """Puts rows in the place of those of the same workload and mode, and writes the file."""

        def group(row):
            return row.get("workload"), row.get("mode")

        renewed = {group(row) for row in rows}
        kept = [row for row in self.rows(part) if group(row) not in renewed]
        self.content["parts"][part] = kept + rows
        self.content["machine"] = machine
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.content, indent=1) + "\n")
