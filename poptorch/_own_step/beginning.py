"""Finds forms of ``step()`` that equal a later form after they create the states.

Most optimizers make their states in the first update: ``state["m"] = torch.zeros_like(p)``. The
host then computes the new states, and the program has the later form alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from poptorch._base.layout import memory_of
from poptorch._base.torch_private.modes_off import plain_torch
from poptorch._own_step import interpret
from poptorch._own_step.calls import FACTORIES, is_written_in_place, name_of
from poptorch._own_step.record import Call, Trace

# Functions that read the shape and type of a tensor alone.
_LIKE = frozenset({"zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones",
                   "new_full", "new_empty"})


@dataclass
class Beginning:
    """A form as a later form after calls that make states.

    Attributes:
        later: the later form.
        made: the calls that make states, and the states.
        kept: the places, among the numbers of the form, of those that the later form has.
        own: the places of those that the calls of ``made`` have.
        reads_params: whether states depend on values of parameters.
    """

    later: Trace
    made: Trace
    kept: list[int]
    own: list[int]
    reads_params: bool

    def states(self, params: dict[str, torch.Tensor], numbers: list[float]) -> dict:
        """The new states by path, from the parameters before the update."""
        with plain_torch(), torch.no_grad():
            given = {(kind, name): params[name].detach() if kind in ("param", "grad")
                     else _like(self.made.tensors[index])
                     for (kind, name), index in self.made.inputs.items()}
            values = [torch.tensor(numbers[place], dtype=torch.float64) for place in self.own]
            found = interpret.run(self.made, given, values)
            return {path: found["state", path] for path in self.made.outputs}


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def beginning_of(first: Trace, later: Trace) -> Beginning | None:
    """``first`` as a beginning of ``later``; None: it is something else."""
    return _Comparison(first, later).found()


class _Comparison:
    """Goes through the calls of both forms. ``same`` has the index in the later form of each tensor
    of the first."""

    def __init__(self, first: Trace, later: Trace):
        self.first, self.later = first, later
        self.same = {index: later.inputs[what] for what, index in first.inputs.items()
                     if what in later.inputs}
        self.states = {index: path for (kind, path), index in later.inputs.items()
                       if kind == "state"}
        self.params = {index for (kind, _), index in first.inputs.items() if kind == "param"}
        self.made: list[Call] = []
        self.indices: set[int] = set()  # of what they make
        self.written: set = set()  # memory that calls have changed
        self.reads_params = False

    def found(self) -> Beginning | None:
        kept, own, place, later = [], [], 0, iter(self.later.calls)
        expected = next(later, None)
        for call in self.first.calls:
            places = range(place, place + numbers_in(call.template))
            place = places.stop
            if expected is not None and self._is_same(call, expected):
                kept += places
                expected = next(later, None)
            elif self._makes_state(call):
                own += places
            else:
                return None
        if expected is not None or not self.made or not self._has_same_outputs():
            return None
        used = {index for call in self.made for index in tensors_in(call.template)}
        inputs = {what: index for what, index in self.first.inputs.items() if index in used}
        read = used - self.indices - set(inputs.values())  # by functions of _LIKE alone
        inputs |= {("like", index): index for index in read}
        states = {self.states[self.same[index]]: index for index in self.indices
                  if index in self.same}
        made = Trace(inputs=inputs, tensors=self.first.tensors, calls=self.made, outputs=states,
                     classes=list(range(len(own))))
        return Beginning(self.later, made, kept, own, self.reads_params)

    def _has_same_outputs(self) -> bool:
        for path, index in self.first.outputs.items():
            if index in self.indices and index not in self.same:  # no call reads it
                self.same[index] = self.later.inputs.get(("state", path))
        return self.later.outputs == {path: self.same.get(index)
                                      for path, index in self.first.outputs.items()}

    def _is_same(self, call: Call, expected: Call) -> bool:
        bound: dict[int, int] = {}
        if call.func != expected.func or not self._fits(call.template, expected.template, bound):
            return False
        self.same |= bound
        for index, other in zip(call.outputs, expected.outputs):
            if self.same.setdefault(index, other) != other:
                return False
        if is_written_in_place(call.func):
            index = next(tensors_in(call.template))
            self.written.add(memory_of(self.first.tensors[index]))
        return True

    def _fits(self, template, expected, bound: dict[int, int]) -> bool:
        """Whether arguments are the same; a tensor that was made may be a state (``bound``)."""
        if type(template) is int or type(expected) is int:
            known = bound.get(template, self.same.get(template)) if type(template) is int else None
            if known is None and template in self.indices and expected in self.states:
                bound[template] = known = expected
            return known is not None and known == expected
        if template[0] not in (list, tuple, dict):
            return template == expected
        if template[0] is not expected[0] or len(template) != len(expected):
            return False
        if template[0] is dict:
            return all(one[0] == other[0] and self._fits(one[1], other[1], bound)
                       for one, other in zip(template[1:], expected[1:]))
        return all(self._fits(one, other, bound)
                   for one, other in zip(template[1:], expected[1:]))

    def _makes_state(self, call: Call) -> bool:
        """Whether a call, which the later form does not have, makes a state or a part of it."""
        if is_written_in_place(call.func) or len(call.outputs) != 1:
            return False
        if name_of(call.func) not in _LIKE and call.func not in FACTORIES:
            for index in tensors_in(call.template):
                is_param = index in self.params
                if not is_param and index not in self.indices:
                    return False
                if memory_of(self.first.tensors[index]) in self.written:
                    return False
                self.reads_params = self.reads_params or is_param
        self.made.append(call)
        self.indices.add(call.outputs[0])
        return True


def tensors_in(template) -> Iterator[int]:
    """The indices of the tensors in a template."""
    return (leaf for leaf in _leaves_in(template) if type(leaf) is int)


def numbers_in(template) -> int:
    """How many numbers a template has."""
    return sum(type(leaf) is not int and leaf[0] == "number" for leaf in _leaves_in(template))


def _leaves_in(template) -> Iterator:
    """The parts of a template that are not containers."""
    kind = None if type(template) is int else template[0]
    if kind is list or kind is tuple:
        for one in template[1:]:
            yield from _leaves_in(one)
    elif kind is dict:
        for _, one in template[1:]:
            yield from _leaves_in(one)
    else:
        yield template
