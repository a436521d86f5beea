"""Copies from and to the host that may overlap with computation: where they are allowed."""

from dataclasses import dataclass

import torch

from poptorch._base.layout import memory_of
from poptorch._capture.library import tensor_nodes
from poptorch.enums import OverlapMode
from poptorch.errors import error_at


@dataclass(frozen=True)
class Overlap:
    """What ``function`` said of the copies of one input or result, in the module and at the
    place."""

    function: str
    name: str
    mode: OverlapMode
    place: tuple[str, int] | None
    module: str

    @property
    def is_input(self) -> bool:
        return self.function == "set_overlap_for_input"

    def error(self, message: str):
        """A :class:`poptorch.Error` at the place of the call."""
        return error_at(f"[{self.function}] {message}", self.place, self.module)


class Overlaps:
    """The copies of one capture that have an overlap mode."""

    def __init__(self, recorder):
        self._recorder = recorder
        self._inputs: dict = {}
        self._found: list[Overlap] = []
        self._outputs: list[tuple[torch.Tensor, torch.Tensor, Overlap]] = []

    def declare_inputs(self, nodes: list, names: list[str]) -> None:
        """Notes the inputs of the model."""
        self._inputs = dict(zip(nodes, names))

    def of_input(self, tensor: torch.Tensor, mode: OverlapMode) -> torch.Tensor:
        """Notes the mode of an input; returns it."""
        if self._recorder.in_backward:  # a checkpoint's function runs again
            return tensor
        node = tensor_nodes.node_of(tensor)
        name = self._inputs.get(node, "")
        new = self._overlap("set_overlap_for_input", name, mode)
        if node not in self._inputs:
            raise new.error("the tensor is not an input of the model: it is a parameter, a "
                            "constant or a computed tensor. Call it with an argument of forward, "
                            "before any other operation.")
        if any(known.name == name for known in self._found):
            raise new.error(f"input {name} has a mode already. Call it once for each input.")
        if node.users:
            raise new.error(f"{next(iter(node.users)).target} was computed from input {name} "
                            f"before. Call it first, and use what it returns.")
        self._found.append(new)
        return tensor

    def of_output(self, tensor: torch.Tensor, mode: OverlapMode) -> torch.Tensor:
        """Notes the mode of a result; returns what is to be returned from forward."""
        if self._recorder.in_backward:
            return tensor
        new = self._overlap("set_overlap_for_output", "", mode)
        if any(tensor is known or tensor is out for known, out, _ in self._outputs):
            raise new.error("the tensor has a mode already. Call it once for each result.")
        out = tensor.view(tensor.shape)
        self._outputs.append((tensor, out, new))
        return out

    def finish(self, results: list, names: list[str]) -> tuple[Overlap, ...]:
        """All that was said, once forward has returned. Raises a :class:`poptorch.Error` if a
        result that has a mode is used, or not returned exactly once."""
        for _, out, said in self._outputs:
            users = tensor_nodes.node_of(out).users
            if users:
                raise said.error(f"{next(iter(users)).target} is computed from what it returned. "
                                 f"Call it last, just before the result is returned.")
            places = [name for result, name in zip(results, names) if result is out]
            if len(places) != 1:
                where = " and ".join(f'"{place}"' for place in places)
                is_other = sum(memory_of(r) == memory_of(out) for r in results
                               if isinstance(r, torch.Tensor))
                raise said.error(
                    f"forward returns the tensor {len(places)} times: {where}. Return it once."
                    if places else "forward does not return what it gave"
                    f"{', but the tensor that it was given' if is_other else ''}. Return that.")
            self._found.append(Overlap(said.function, places[0] or "0", said.mode, said.place,
                                       said.module))
        return tuple(self._found)

    def _overlap(self, function: str, name: str, mode: OverlapMode) -> Overlap:
        recorder = self._recorder
        return Overlap(function, name, mode, recorder.places.here(), recorder.module)
