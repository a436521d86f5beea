"""What a program has of an optimizer with its own ``step()``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import NamedTuple

import torch

from poptorch._base import schema
from poptorch._own_step.record import Trace
from poptorch._own_step.saved_form import SavedForm

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
        iterations: the updates of one call, on all of ``replicas``.
        group_names: the names of the parameters in each group of the optimizer.
        loss: dtype of the loss that is scaled: none is.
        state_dict: of the optimizer, while the program is saved and loaded.
    """

    kind: str
    params: dict[str, torch.Tensor]
    grads: list[str]
    states: dict[str, torch.Tensor]
    traces: list[Trace | SavedForm]
    version: int
    iterations: int
    replicas: int
    group_names: list[list[str]]
    loss: str = ""
    updated: list[str] = field(default_factory=list)
    state_dict: dict | None = None

    @property
    def width(self) -> int:
        """The numbers of one update: its form, and those of its calls."""
        return 1 + max((max(trace.classes, default=-1) + 1 for trace in self.traces), default=0)

    @property
    def rows(self) -> int:
        """How often a call reads the numbers of an update."""
        return 1 if self.iterations == 1 else self.iterations * self.replicas

    def row(self, form: int, numbers: Sequence[float]) -> list[float]:
        """What the device gets for one update."""
        row = [float(form), *map(float, numbers)]
        return row + [0.0] * (self.width - len(row))

    @property
    def groups(self) -> list:
        return [SimpleNamespace(params=list(self.params.items()))]

    def streams(self) -> dict[str, list[int]]:
        return {STREAM: [self.rows, self.width]}

    def program_states(self) -> dict[str, torch.Tensor]:
        """The states by their paths in the program."""
        return {program_path(path): tensor for path, tensor in self.states.items()}

    def to_data(self) -> dict:
        """This as plain data, and the state of the optimizer."""
        forms = [one if isinstance(one, SavedForm) else SavedForm.of(one) for one in self.traces]
        return {"kind": self.kind, "grads": self.grads, "groups": self.group_names,
                "updated": self.updated, "states": self.states, "state_dict": self.state_dict,
                "forms": [vars(form) for form in forms]}

    @classmethod
    def from_data(cls, data: dict, parameters: dict[str, torch.Tensor], spec) -> "StepLayout":
        """The layout that :meth:`to_data` described, of the parameters of these names. Raises a
        ValueError for data of another form."""
        schema.check(data, {"kind": str, "grads": [{*parameters}], "groups": [[str]],
                            "updated": [str], "forms": list, "states": {str: torch.Tensor},
                            "state_dict": dict}, "optimizer")
        states = {path: tensor.detach().clone(memory_format=torch.contiguous_format)
                  for path, tensor in data["states"].items()}
        params = {name: parameters[name] for group in data["groups"] for name in group
                  if name in parameters}
        return cls(data["kind"], params, data["grads"], states, SavedForm.from_data(data["forms"]),
                   0, spec.device_iterations, spec.replicas, data["groups"],
                   updated=data["updated"], state_dict=data["state_dict"])

    def entries(self) -> Iterator[Entry]:
        for path in self.updated:
            yield Entry(path)

    def has_no_dims(self, key: str) -> bool:
        return True


def program_path(path: str) -> str:
    """The path in the program of a state of the optimizer."""
    return f"optimizer.{path}"
