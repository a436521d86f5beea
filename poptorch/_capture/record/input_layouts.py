"""Whether a program depends on the strides of its inputs, which may differ in a later call: where
``as_strided`` names places in an input, and where ``reshape`` or ``contiguous`` gives a view or a
copy, and either is changed."""

import torch
from torch import fx

from poptorch._base.torch_private import fake_tensors
from poptorch._capture.graph import views
from poptorch._capture.graph.regions import nodes_within


def _view_or_copy(capture, func, /, *args, **kwargs):
    out, recorder = func(*args, **kwargs), capture.recorder
    operand = args[0] if args else kwargs.get("input")
    if fake_tensors.is_fake(operand) and fake_tensors.is_fake(out):
        recorder.layouts.note_choice(recorder.node_of(operand), recorder.node_of(out))
    return out


# Functions that give a view of their operand, or a copy where it lies otherwise.
HANDLERS = dict.fromkeys(
    (torch.Tensor.reshape, torch.reshape, torch.Tensor.reshape_as, torch.Tensor.contiguous,
     torch.Tensor.flatten, torch.flatten, torch.Tensor.ravel, torch.ravel), _view_or_copy)


class InputLayouts:
    """What a capture has taken from the layout of its inputs."""

    def __init__(self):
        self._names_places = False
        self._choices: list[tuple[fx.Node, fx.Node]] = []

    def note_places(self) -> None:
        """An operation names places in the memory of a tensor."""
        self._names_places = True

    def note_choice(self, operand: fx.Node, result: fx.Node) -> None:
        """``result`` is a view or a copy of ``operand``, as that happens to lie."""
        self._choices.append((operand, result))

    def of(self, graph: fx.Graph, inputs: list[torch.Tensor]) -> list:
        """For each input ``(strides, start)``, the layout that the recorded graph depends on; None
        where it depends on none. The stride of a dimension of one element is None, and so is
        the start where only strides make a difference."""
        if not self._names_places and not self._is_choice_seen(graph):
            return [None] * len(inputs)
        return [([step if size > 1 else None for size, step in zip(x.shape, x.stride())],
                 x.storage_offset() if self._names_places else None) for x in inputs]

    def _is_choice_seen(self, graph: fx.Graph) -> bool:
        if not self._choices:
            return False
        changed = {views.root_of(target) for node in nodes_within(graph)
                   for target in views.written_by(node)}
        return any(views.root_of(node) in changed for pair in self._choices for node in pair)
