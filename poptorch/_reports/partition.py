"""The table that ``partition_summary`` returns."""

import html

_MOST_NAMES = 3  # in one cell


class PartitionTable:
    """A table with a line for each stage: as text, and as HTML in a notebook.

    Attributes:
        rows: for each stage a dictionary, from ``Executable.shares``.
    """

    def __init__(self, shares: list[dict]):
        self.rows = shares
        is_phased = any(share["phase"] for share in shares)
        self._titles = ["phase"] * is_phased + ["stage", "IPU", "blocks", "modules", "parameters",
                                                "bytes", "share"]
        total = sum(share["parameter_bytes"] for share in shares)
        self._lines = [_cells(share, total)[0 if is_phased else 1:] for share in shares]

    def __repr__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self._titles, *self._lines)]
        is_text = [title in ("blocks", "modules") for title in self._titles]
        return "\n".join("  ".join(cell.ljust(width) if text else cell.rjust(width)
                                   for cell, width, text in zip(line, widths, is_text)).rstrip()
                         for line in [self._titles, *self._lines])

    def _repr_html_(self) -> str:
        rows = [_html_row("th", self._titles), *(_html_row("td", line) for line in self._lines)]
        return f"<table>{''.join(rows)}</table>"


def _html_row(tag: str, cells: list[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _cells(share: dict, total: int) -> list[str]:
    part = share["parameter_bytes"] / total if total else 0.0
    return [str(share["phase"]), str(share["stage"]), str(share["ipu"]), _names(share["blocks"]),
            _names(share["modules"]), f"{share['parameter_elements']:,}",
            f"{share['parameter_bytes']:,}", f"{part:.1%}"]


def _names(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    shown = names[:_MOST_NAMES] + ([f"+{more}"] if more > 0 else [])
    return ", ".join(shown) or "-"
