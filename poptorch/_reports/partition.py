"""The table that ``partition_summary`` returns."""

from poptorch._base import table

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
        return table.text(self._titles, self._lines, left=("blocks", "modules"))

    def _repr_html_(self) -> str:
        return table.html(self._titles, self._lines)


def _cells(share: dict, total: int) -> list[str]:
    part = share["parameter_bytes"] / total if total else 0.0
    return [str(share["phase"]), str(share["stage"]), str(share["ipu"]), _names(share["blocks"]),
            _names(share["modules"]), f"{share['parameter_elements']:,}",
            f"{share['parameter_bytes']:,}", f"{part:.1%}"]


def _names(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    shown = names[:_MOST_NAMES] + ([f"+{more}"] if more > 0 else [])
    return ", ".join(shown) or "-"
