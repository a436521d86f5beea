"""The record of one form of ``step()``: its calls of torch."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass
class Call:
    """A call of torch: its arguments as a template, and the indices of the tensors it returns."""

    func: Callable
    template: tuple
    result: object
    outputs: list[int]
    place: tuple | None = None


@dataclass
class Trace:
    """The calls of one ``step()``.

    Attributes:
        inputs: the index of each input by ``("param" or "grad" or "state", name)``.
        ids: the index of each tensor, by identity.
        tensors: that stand for the values, by index; without data.
        outputs: the index of the tensor that each state becomes, by path.
        classes: the number among the run-time numbers of each number of the calls, in order.
        saved: which form it is of a program from a file; None: of none.
    """

    inputs: dict[tuple, int] = field(default_factory=dict)
    ids: dict[int, int] = field(default_factory=dict)
    tensors: list = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    outputs: dict[str, int] = field(default_factory=dict)
    classes: list[int] = field(default_factory=list)
    saved: int | None = None
    grads: dict[int, torch.Tensor] = field(default_factory=dict)  # by identity of the parameter
    kept: list = field(default_factory=list)  # whose identities are in ids

    def add(self, tensor: torch.Tensor, real: torch.Tensor | None = None) -> int:
        """Gives a tensor an index; ``real`` is what it stands for."""
        index = len(self.tensors)
        self.tensors.append(tensor)
        self.ids[id(tensor)] = index
        if real is not None:
            self.ids[id(real)] = index
            self.kept.append(real)
        return index


def new_trace(params: dict, grads: dict, states: dict, fake_like: Callable) -> Trace:
    """A trace without calls."""
    trace = Trace()
    for name, parameter in params.items():
        trace.inputs["param", name] = trace.add(fake_like(parameter), parameter)
    for name, parameter in grads.items():
        gradient = trace.grads[id(parameter)] = fake_like(parameter)
        trace.inputs["grad", name] = trace.add(gradient)
    for path, tensor in states.items():
        trace.inputs["state", path] = trace.add(fake_like(tensor), tensor)
    return trace
