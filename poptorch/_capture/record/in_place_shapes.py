"""In-place operations that change no value, only how a tensor looks at its memory."""

import operator

import torch
from torch import fx

from poptorch._base.torch_private import fake_tensors
from poptorch._capture.graph import views
from poptorch._capture.library import tensor_nodes
from poptorch.errors import error_at

aten = torch.ops.aten

# Operation -> that which gives a view: the tensor gets the node of the view.
_OF_VIEWS = {
    aten.squeeze_.default: aten.squeeze.default,
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.squeeze_.dims: aten.squeeze.dims,
    aten.unsqueeze_.default: aten.unsqueeze.default,
    aten.t_.default: aten.t.default,
    aten.transpose_.default: aten.transpose.int,
}
_METHODS = {view: view.overloadpacket.__name__ + "_" for view in _OF_VIEWS.values()}
# The methods that change the shape of a caller's tensor as forward does.
METHODS = frozenset(_METHODS.values())


class Shapes:
    """Records, for a :class:`Recorder`, tensors that change their shape."""

    def __init__(self, recorder):
        self._recorder = recorder
        self.handlers = dict.fromkeys(_OF_VIEWS, self._change)
        # Of each parameter, buffer and argument, by its fake tensor: name, node, its first look.
        self._states: dict[int, tuple[str, fx.Node, tuple]] = {}
        # Where a tensor changed its shape last: place and module.
        self._lines: dict[int, tuple] = {}

    def watch(self, fake: torch.Tensor, name: str) -> None:
        """Notes how the fake tensor of a parameter, buffer or argument looks at its memory."""
        self._states[id(fake)] = name, self._recorder.node_of(fake), _looks(fake)

    def check_memory(self, fake: torch.Tensor, node: fx.Node, name: str) -> None:
        """Raises an Error if a tensor of the user's no longer uses the memory of the node that it
        was declared with."""
        if views.root_of(self._recorder.node_of(fake)) is not node:
            raise error_at(f"[capture] forward gives {name} the memory of another tensor "
                           f"(torch.utils.swap_tensors). Copy the values: `{name}.copy_(value)`.",
                           *self._lines.get(id(fake), (None, "")))

    def check(self, tensor, func) -> None:
        """Checks that ``func`` may change how ``tensor`` looks at its memory."""
        if not fake_tensors.is_fake(tensor):
            raise self._recorder.error(
                f"[capture] forward changes the shape of a tensor from outside in place ({func}). "
                f"Change a new view of it instead.")
        if self._recorder.is_across(tensor):
            raise self._recorder.error(
                f"[capture] forward changes the shape {list(tensor.shape)} of a tensor in place "
                f"({func}) in the body of a loop or a branch, but the tensor was created outside "
                f"of the body. Change a new view of it instead.")

    def shadow(self, tensor):
        """What a tensor that is about to change its shape was until now."""
        node = self._recorder.node_of(tensor)
        old = fake_tensors.detached(self._recorder.fake_mode, tensor)
        _set_value(node, old)
        tensor_nodes.attach(old, node)
        return old

    def rename(self, tensor, node: fx.Node) -> None:
        """Lets ``node`` stand for a tensor that has changed its shape."""
        self._lines[id(tensor)] = self._recorder.places.here(), self._recorder.module
        tensor_nodes.attach(tensor, node)

    def exchange(self, tensor, view) -> None:
        """Lets the Python object of ``tensor`` become a view of it, and that of the view what the
        tensor is: what autograd has made of the tensor so far still refers to that."""
        own, viewed = self._recorder.node_of(tensor), self._recorder.node_of(view)
        fake_tensors.swap(tensor, view)
        _set_value(own, view)
        _set_value(viewed, tensor)
        self._recorder.picks.note_shape(tensor, view)
        self.rename(tensor, viewed)

    def end_of(self, fake: torch.Tensor, is_trained: bool) -> fx.Node | None:
        """The node of a parameter or buffer that looks otherwise at its memory in the end than at
        first; None for others. Raises an Error if it cannot look like that in the next call."""
        name, node, (shape, *first) = self._states[id(fake)]
        self.check_memory(fake, node, name)
        if _looks(fake) == (shape, *first):
            return None
        if fake.shape == shape and not is_trained:
            return self._recorder.node_of(fake)
        what = f"the shape of {name} in place from {list(shape)} to {list(fake.shape)}" \
            if fake.shape != shape else f"the memory layout of {name} in place, which is trained"
        raise error_at(f"[capture] forward changes {what}. Change a view of it instead.",
                       *self._lines[id(fake)])

    def changes_of(self, fake: torch.Tensor) -> list[tuple[str, list]]:
        """The methods, with their arguments, that change the shape of the caller's tensor as
        ``forward`` changes that of its argument. Raises an Error if there are none for it."""
        name, node, first = self._states[id(fake)]
        self.check_memory(fake, node, name)
        if _looks(fake) == first:
            return []
        calls, part = [], self._recorder.node_of(fake)
        while part is not node:
            if part.target not in _METHODS:
                raise error_at(f"[capture] forward changes the shape of the argument {name} in "
                               f"place (as_strided_ or resize_). Change a view of it instead.",
                               *self._lines[id(fake)])
            calls.append((_METHODS[part.target],
                          [list(x) if isinstance(x, list) else x for x in part.args[1:]]))
            part = part.args[0]
        return calls[::-1]

    def _change(self, func, args, kwargs):
        tensor = args[0]
        self.check(tensor, func)
        old = self.shadow(tensor)
        self._recorder.picks.note_shape(tensor, old)
        view = self._recorder.run(_OF_VIEWS[func], old, *args[1:])
        out = func(*args, **kwargs)
        self.rename(tensor, self._recorder.node_of(view))
        return out


def _set_value(node: fx.Node, value: torch.Tensor) -> None:
    node.meta["val"] = value
    if node.target is operator.getitem:
        parent, index = node.args
        results = list(parent.meta["val"])
        results[index] = value
        parent.meta["val"] = results


def _looks(tensor) -> tuple:
    return tensor.shape, tensor.stride(), tensor.storage_offset()
