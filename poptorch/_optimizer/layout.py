"""What a program has of an optimizer: its groups, their streams, and where each state lies."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from poptorch._base import schema
from poptorch._optimizer.gradient_factor import (
    LARGEST,
    LOSS_SCALE_STREAMS,
    NORM_STREAM,
    velocity_stream,
)
from poptorch._optimizer.rows import ROWS
from poptorch._optimizer.settings import SHARED
from poptorch._optimizer.spec import COUNT, GLOBAL, GLOBAL_STATES, OptimizerSpec

COMBINED = "use_combined_accum"
_CONSTANT = float | bool | str | tuple | None


@dataclass
class GroupLayout:
    """What is compiled for one parameter group.

    Attributes:
        stream: of the group's hyper-parameters.
        compiled_in: what ``OptimizerSpec.compiled_in`` said of the group.
        params: ``(name, parameter)`` of those that are updated.
        states: ``(path, parameter name, key)`` of what is kept; of the key ``step`` too, where
            there are other states. Parameters that have made equal numbers of updates share the
            path of that.
        types: ``(setting, dtype of a parameter, dtype)`` for the settings that give types.
        constants: the hyper-parameters that must not change.
        velocity_scaling: the factor of the combined velocities that the program has at present.
    """

    stream: str
    compiled_in: tuple = ()
    params: list = field(default_factory=list)
    states: list = field(default_factory=list)
    types: list = field(default_factory=list)
    constants: dict = field(default_factory=dict)
    velocity_scaling: float = 1.0


class StateEntry(NamedTuple):
    """A state of one parameter. One that is kept once for all has no parameter name, the tensor
    ``GLOBAL`` and no group."""

    path: str
    parameter: str
    tensor: torch.Tensor | str
    key: str
    group: GroupLayout | None = None


@dataclass
class UpdateLayout:
    """What is compiled for a whole optimizer.

    Attributes:
        constants: the settings that all groups share and that must not change.
        streamed: those of these settings that the program reads.
        loss: dtype of the loss that is scaled; "": none is.
        states: ``(path, key)`` of what is kept once for all parameters.
    """

    spec: OptimizerSpec
    groups: list[GroupLayout] = field(default_factory=list)
    constants: dict = field(default_factory=dict)
    streamed: list[str] = field(default_factory=list)
    loss: str = ""
    states: list = field(default_factory=list)

    def entries(self) -> Iterator[StateEntry]:
        for group in self.groups:
            tensors = dict(group.params)
            for path, name, key in group.states:
                yield StateEntry(path, name, tensors[name], key, group)
        for path, key in self.states:
            yield StateEntry(path, "", GLOBAL, key)

    def has_no_dims(self, key: str) -> bool:
        """Whether a state is a number, which updates alone change: the same for all replicas."""
        return key == COUNT or key in GLOBAL_STATES or any(
            state.key == key and state.has_no_dims for state in self.spec.states)

    def streams(self) -> dict[str, list[int]]:
        """The sizes of each stream that brings numbers of the optimizer; of doubles."""
        found = {group.stream: [len(self.spec.hyper)] for group in self.groups}
        found |= {velocity_stream(group.stream): [] for group in self.groups
                  if (COMBINED, "", "True") in group.types}
        if "loss_scaling" in self.streamed:
            found |= dict.fromkeys(LOSS_SCALE_STREAMS, [])
        if "max_grad_norm" in self.streamed:
            found[NORM_STREAM] = []
        return found

    def to_data(self) -> dict:
        """This as plain data, parameters by name."""
        groups = [{**vars(group), "params": [name for name, _ in group.params]}
                  for group in self.groups]
        data = {**vars(self), "class": self.spec.name, "groups": groups}
        del data["spec"]
        return data

    @classmethod
    def from_data(cls, data: dict, parameters: dict[str, torch.Tensor]) -> "UpdateLayout":
        """The layout that :meth:`to_data` described, of the parameters of these names. Raises a
        ValueError for data of another form."""
        by_name = {spec.name: spec for spec in ROWS.values()}
        schema.check(data, {"class": {*by_name}, "groups": list, "constants": {str: _CONSTANT},
                            "streamed": [{*SHARED}], "loss": {"", *LARGEST},
                            "states": [(str, {*GLOBAL_STATES})]},
                     "optimizer")
        spec = by_name[data["class"]]
        keys = {COUNT, *(state.key for state in spec.states)}
        form = {"stream": str, "params": [str], "states": list, "compiled_in": tuple,
                "types": [(str, str, str)], "constants": {str: _CONSTANT},
                "velocity_scaling": float}
        schema.check(data["groups"], [form], "optimizer.groups")
        for group in data["groups"]:
            schema.check(group["states"], [(str, {*group["params"]}, keys)], "optimizer.states")
        groups = [GroupLayout(**{**group, "params": [(name, parameters[name])
                                                     for name in group["params"]]})
                  for group in data["groups"]]
        return cls(spec, groups, data["constants"], data["streamed"], data["loss"], data["states"])
