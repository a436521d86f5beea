"""What a program has of an optimizer with its own ``step()``."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import NamedTuple

import torch

from poptorch._own_step.trace import Trace

STREAM = "optimizer.numbers"


class Entry(NamedTuple):
    """A state as ``UpdateLayout.entries`` has it: no parameter decides what replicas have of it."""

    path: str
    parameter: str = ""
    key: str = ""


@dataclass
class StepLayout:
    """What is compiled of an optimizer.

    Attributes:
        params: the parameters by name; ``grads`` are the names of those with a gradient.
        states: the tensors that the device has, by path in the optimizer.
        traces: the forms of ``step()``.
        version: of the forms, see ``Variants``.
        iterations: the updates of one call.
        loss: dtype of the loss that is scaled: none is.
    """

    kind: str
    params: dict[str, torch.Tensor]
    grads: list[str]
    states: dict[str, torch.Tensor]
    traces: list[Trace]
    version: int
    iterations: int
    loss: str = ""
    updated: list[str] = field(default_factory=list)

    @property
    def width(self) -> int:
        """The numbers of one update: its form, and those of its calls."""
        return 1 + max((max(trace.classes, default=-1) + 1 for trace in self.traces), default=0)

    @property
    def groups(self) -> list:
        return [SimpleNamespace(params=list(self.params.items()))]

    def streams(self) -> dict[str, list[int]]:
        return {STREAM: [self.width]}

    def entries(self) -> Iterator[Entry]:
        for path in self.updated:
            yield Entry(path)

    def has_no_dims(self, key: str) -> bool:
        return True
