"""The table that ``partition_summary`` returns."""

import html
from dataclasses import dataclass

from poptorch._base import table
from poptorch._reports.balance import Move
from poptorch._reports.schedule import Schedule
from poptorch._reports.timeline import Timeline

_MOST_NAMES = 3  # in one cell


@dataclass(frozen=True)
class BlockWork:
    """The work of one micro-batch by block: rows of ``_C.block_report`` and ``_C.block_costs``."""

    flops: list[dict]
    cycles: list[dict]

    def flops_of(self, blocks: list[str]) -> float:
        return _sum(self.flops, blocks)

    def cycles_of(self, blocks: list[str]) -> float:
        return _sum(self.cycles, blocks)


def _sum(rows: list[dict], blocks: list[str]) -> float:
    return sum(row["forward"] + row["backward"] for row in rows if row["name"] in blocks)


class PartitionTable:
    """A table with a line for each stage: as text, and as HTML in a notebook.

    Attributes:
        rows: for each stage a dictionary, from ``Executable.shares``, with the FLOPs and the cycles
            of one micro-batch, the bytes of stashes, and the idle share of the stage's IPU.
        advice: a sentence about the block whose move to a neighbouring stage saves most time; None
            where no move does.
    """

    def __init__(self, shares: list[dict], work: BlockWork, schedule: Schedule, timeline: Timeline,
                 move: Move | None):
        phases = _phases(shares, schedule)
        self.rows = [_row(share, work, schedule, timeline, phases.get(share["phase"]))
                     for share in shares]
        self.advice = None if move is None else str(move)
        is_phased = any(row["phase"] for row in self.rows)
        has_several = len(schedule.ipus) > 1
        total = sum(row["parameter_bytes"] for row in self.rows)
        columns = _columns(total)
        names = ["phase"] * is_phased + ["stage", "IPU", "blocks", "modules", "parameters", "bytes",
                                         "share", "FLOPs", "cycles"]
        names += ["stash", "idle"] * has_several
        self._titles = names
        self._lines = [[columns[name](row) for name in names] for row in self.rows]

    def __repr__(self) -> str:
        text = table.text(self._titles, self._lines, left=("blocks", "modules"))
        return text if self.advice is None else f"{text}\n{self.advice}"

    def _repr_html_(self) -> str:
        page = table.html(self._titles, self._lines)
        return page if self.advice is None else f"{page}<p>{html.escape(self.advice)}</p>"


def _phases(shares: list[dict], schedule: Schedule) -> dict[int, int]:
    """The phase of the forward tasks of each phase of the model: some lie apart for transfers."""
    numbers = {task.phase for task in schedule.tasks
               if task.phase is not None and task.part != "backward"}
    return dict(zip(sorted({share["phase"] for share in shares}), sorted(numbers)))


def _row(share: dict, work: BlockWork, schedule: Schedule, timeline: Timeline,
         phase: int | None) -> dict:
    is_first = not share["phase"] and not share["stage"]
    blocks = [*share["blocks"], ""] if is_first else share["blocks"]  # "": before the first one
    is_used = share["ipu"] in timeline.ipus
    return share | {"flops": work.flops_of(blocks), "cycles": work.cycles_of(blocks),
                    "stash_bytes": schedule.stash_bytes(share["stage"], phase),
                    "idle_share": timeline.idle_share(share["ipu"]) if is_used else 1.0}


def _columns(total: int) -> dict:
    """How a row shows what stands under each title; ``total``: bytes of all parameters."""
    return {"phase": lambda row: str(row["phase"]), "stage": lambda row: str(row["stage"]),
            "IPU": lambda row: str(row["ipu"]), "blocks": lambda row: _names(row["blocks"]),
            "modules": lambda row: _names(row["modules"]),
            "parameters": lambda row: f"{row['parameter_elements']:,}",
            "bytes": lambda row: f"{row['parameter_bytes']:,}",
            "share": lambda row: f"{row['parameter_bytes'] / total if total else 0.0:.1%}",
            "FLOPs": lambda row: f"{row['flops']:,.0f}",
            "cycles": lambda row: f"{row['cycles']:,.0f}",
            "stash": lambda row: f"{row['stash_bytes']:,}",
            "idle": lambda row: f"{row['idle_share']:.1%}"}


def _names(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    shown = names[:_MOST_NAMES] + ([f"+{more}"] if more > 0 else [])
    return ", ".join(shown) or "-"
