"""What ``poptorch.analyze`` returns."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from poptorch._base import table

_STATUSES = ("native", "opaque", "refused")
_TITLES = ["operation", "status", "count", "FLOPs", "bytes", "part", "module", "line"]
_LEFT = ("operation", "status", "part", "module", "line")


@dataclass(frozen=True)
class AnalyzedOperation:
    """Equal operations of one line of the program.

    Attributes:
        operation: its name in PyTorch.
        status: ``"native"``: an operation of poptorch; ``"opaque"``: PyTorch's own operator runs;
            ``"refused"``: the model cannot be compiled with it.
        part: ``"forward"`` or ``"backward"``.
        module: dotted path of the module; empty for the outermost one.
        location: ``file:line`` of the program; empty where it is not known.
        reason: why it is refused.
        alternative: what to do instead.
        count: how many there are in a micro-batch.
        flops: of all of them; None where it is not known.
        bytes: that all of them read and write.
    """

    operation: str
    status: str
    part: str
    module: str
    location: str
    reason: str = ""
    alternative: str = ""
    count: int = 1
    flops: int | None = None
    bytes: int = 0

    @classmethod
    def refused_by(cls, operation: str, message: str, location: str = "", module: str = "",
                   part: str = "forward") -> Self:
        """The row of an error ``[where] what is wrong. What to do.``"""
        reason, _, alternative = re.sub(r"^\[[^]]*\] ", "", message).partition(". ")
        return cls(operation, "refused", part, module, location, reason.rstrip("."),
                   alternative)

    @property
    def told(self) -> tuple[str, str]:
        """The reason and the alternative."""
        return self.reason, self.alternative


@dataclass(frozen=True)
class Analysis:
    """The operations of a model, as :func:`poptorch.analyze` lists them.

    ``print`` shows a table, a notebook shows it as HTML.

    Attributes:
        title: class of the model, and ``training`` or ``inference``.
        rows: an entry for equal operations of one line, with ``operation``, ``status``
            (``"native"``, ``"opaque"`` or ``"refused"``), ``part``, ``module``, ``location``,
            ``reason``, ``alternative``, ``count``, ``flops`` (None: not known) and ``bytes``.
            Numbers are for one micro-batch.
        loss: of training, ``file:line`` where the loss is computed; None if there is none.
        not_trained: of training, the parameters that are not trained, with the reason.

    Example:
        >>> import poptorch, torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
        >>> found = poptorch.analyze(net, torch.ones(3, 4))
        >>> isinstance(found, poptorch.Analysis), found.counts["refused"], found.flops > 0
        (True, 0, True)
    """

    title: str
    rows: tuple[AnalyzedOperation, ...]
    loss: str | None
    not_trained: dict[str, str]

    @property
    def counts(self) -> dict[str, int]:
        """The number of operations of each status."""
        return {status: sum(row.count for row in self.rows if row.status == status)
                for status in _STATUSES}

    @property
    def refused(self) -> list[AnalyzedOperation]:
        """The rows of refused operations."""
        return [row for row in self.rows if row.status == "refused"]

    @property
    def flops(self) -> int:
        """The known FLOPs of a micro-batch."""
        return sum(row.flops or 0 for row in self.rows)

    def to_json(self, path: str | None = None) -> str:
        """The analysis as JSON.

        Args:
            path: of a file to write it to; None: no file.

        Returns:
            The text.
        """
        text = json.dumps({"title": self.title, "counts": self.counts, "loss": self.loss,
                           "not_trained": self.not_trained,
                           "rows": [asdict(row) for row in self.rows]}, indent=2)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {status}" for status, count in self.counts.items())
        refused = [f"{row.operation} is refused"
                   f"{f' at {row.location}' if row.location else ''}: {row.reason}."
                   f"{f' {row.alternative}' if row.alternative else ''}" for row in self.refused]
        return "\n".join([f"{self.title}: {counts}", *self._training(),
                          table.text(_TITLES, self._lines(), _LEFT), *([""] if refused else []),
                          *dict.fromkeys(refused)])

    def _repr_html_(self) -> str:
        titles = [*_TITLES, "reason", "alternative"]
        return table.html(titles, [[*line, *row.told]
                                   for line, row in zip(self._lines(), self._sorted())])

    def _sorted(self) -> list[AnalyzedOperation]:
        """Refused operations first, then opaque ones."""
        return sorted(self.rows, key=lambda row: -_STATUSES.index(row.status))

    def _lines(self) -> list[list[str]]:
        return [[row.operation, row.status, f"{row.count:,}",
                 "?" if row.flops is None else f"{row.flops:,}", f"{row.bytes:,}", row.part,
                 row.module, row.location] for row in self._sorted()]

    def _training(self) -> list[str]:
        if not self.title.endswith("training"):
            return []
        lines = [f"loss: {self.loss or 'not found'}"]
        return lines + [f"not trained: {name}: {why}" for name, why in self.not_trained.items()]
