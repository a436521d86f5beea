"""Values of tensors that Python code in ``forward`` reads: ``.item()``, ``.tolist()``, ``if``."""

import torch
from torch import fx

from poptorch._base.layout import memory_of
from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._capture.graph.constant_values import with_known_values
from poptorch.errors import Error


class ReadValues:
    """What was read in one capture.

    Attributes:
        tensors: real tensors whose values decided what was recorded, by their identity.
        states: the values of parameters and buffers that the program does not train, by node.
        read_states: those of them that were read.
        unread: the error for the first value that was wanted and is not known, or None.
        packed: paths of packed sequences among the arguments, by the memory of their batch sizes.
    """

    def __init__(self, recorder):
        self._recorder = recorder
        self.tensors: dict[int, torch.Tensor] = {}
        self.states: dict[fx.Node, torch.Tensor] = {}
        self.read_states: set[fx.Node] = set()
        self.unread: Exception | None = None
        self.packed: dict[int, str] = {}

    def note(self, tensor: torch.Tensor) -> None:
        """Takes note that a value of a real tensor is known to what is recorded from now on."""
        self.tensors[id(tensor)] = tensor

    def note_state(self, node: fx.Node) -> None:
        """Takes note that the value of a parameter or buffer was read."""
        self.read_states.add(node)
        self.note(self.states[node])

    def known(self, given):
        """Arguments with the values of those tensors in place of them that Python code may read."""
        # In the body of a loop a buffer may change from round to round.
        states = None if self._recorder.is_in_region() else self.states
        return with_known_values(self._recorder, given, states)

    def check_states(self, changed) -> None:
        """Raises an Error when ``forward`` changes a parameter or buffer whose value it read."""
        for node in self.read_states & set(changed):
            raise Error(f"[capture] forward reads the value of {node.meta['path']} in Python code "
                        f"(if, .item(), .tolist()) and also changes it, so each call would need "
                        f"another program. Use torch.where, or do not change it in forward.")

    def operation(self, func, args, kwargs):
        """The result of an operation that gives Python code a value."""
        known = self.known(args)
        if not any(map(self._has_no_value, known)):
            for tensor in args:
                if isinstance(tensor, torch.Tensor) and not fake_tensors.is_fake(tensor):
                    self.note(tensor)
            with private.without_modes():
                return func(*_numbers_as_tensors(func, known), **kwargs)
        try:
            return func(*args, **kwargs)
        except fake_tensors.DataDependentOutputException:
            raise self.error(func, args) from None

    def check(self, tensor: torch.Tensor, func) -> None:
        """Checks that the data of a real tensor are its value, which ``func`` reads."""
        if self._is_outdated(tensor):
            raise self.error(func)
        self.note(tensor)

    def error(self, func, args=()) -> Exception:
        """The error for Python code that reads the value of a tensor, with the arguments of what
        reads it."""
        packed = (self.error_of_packed(arg) for arg in args)
        self.unread = self.unread or next(filter(None, packed), None) or self._recorder.error(
            f"[capture] Python code needs the value of a tensor ({func}), but forward is compiled "
            f"before there are values. Use torch.where, torch.clamp or masks instead of `if` and "
            f".item(), poptorch.dynamic_slice(tensor, dim, start, size, step) for a part that "
            f"begins at a computed place, or compute the value outside of forward and pass it in.")
        return self.unread

    def error_of_packed(self, sizes) -> Exception | None:
        """The error for reading the batch sizes of a packed sequence that is an argument; None
        for any other tensor."""
        path = self.packed.get(memory_of(sizes)) if self.packed else None
        return path and self._recorder.error(
            f"[arguments] {path} is a torch.nn.utils.rnn.PackedSequence, and forward needs the "
            f"values of its batch sizes, but is compiled before there are values. Pass the padded "
            f"tensor and the lengths, and call pack_padded_sequence in forward.")

    def _has_no_value(self, argument) -> bool:
        """Whether a tensor has no data, or its data are out of date."""
        if not isinstance(argument, torch.Tensor):
            return False
        return fake_tensors.is_fake(argument) or self._is_outdated(argument)

    def _is_outdated(self, tensor: torch.Tensor) -> bool:
        """Whether a real tensor is a parameter or buffer, whose value is on the device, or a tensor
        that forward has changed, directly or through a view."""
        node = self._recorder.known_constant(tensor)
        if node is None:
            return False
        if node in self.states and memory_of(node.meta["val"]) not in self._recorder.changed:
            self.note_state(node)
            return False
        return node not in self._recorder.constants \
            or memory_of(node.meta["val"]) in self._recorder.changed


def _numbers_as_tensors(func, args) -> list:
    """Operands, with tensors where an operator takes tensors: to a mode, torch gives the constants
    of traced programs as numbers."""
    return [torch.tensor(x) if isinstance(x, (bool, int, float)) and str(argument.type) == "Tensor"
            else x for x, argument in zip(args, func._schema.arguments)]
