"""Elements ``x[i]`` whose place the program computes: ``i`` is a tensor without dimensions. And
``x.narrow(dim, i, length)``.

In eager they are a view of ``x``, for autograd here a copy: what changes the copy in place is
written to ``x`` at once. ``functionalize`` treats them as views, where that changes nothing.
"""

import torch

aten = torch.ops.aten


class Picks:
    """The elements that were taken in one capture."""

    def __init__(self, recorder):
        self._recorder = recorder
        self.handlers = {aten.index_select.default: self._index_select}
        self._is_taking = False
        # Copy, its version, and where it is written back: tensor, dimension and places.
        self._copies: list[list] = []
        self._changes = 0
        # Of each result x[i], by its identity: x, i and itself.
        self._results: dict[int, tuple] = {}

    def take(self, whole, dim: int, positions):
        """The elements of ``whole`` at ``positions``, a tensor of one dimension, along ``dim``."""
        self._is_taking = True
        try:
            copy = whole.index_select(dim, positions)
        finally:
            self._is_taking = False
        meta = self._recorder.node_of(copy).meta
        meta["picked_from"] = self._recorder.node_of(whole)
        meta["picked"] = copy, whole._base if whole._is_view() else whole
        self._copies.append([copy, copy._version, whole, dim, positions])
        return copy

    def note_shape(self, tensor, old) -> None:
        """Notes that ``tensor`` changes its shape in place; ``old`` is its value before."""
        for entry in self._copies:
            if entry[2] is tensor:
                entry[2] = old
        self._results = {key: known for key, known in self._results.items()
                         if known[0] is not tensor}

    def lies_by_value(self, tensor) -> bool:
        """Whether the value of an index says where in the memory of another tensor this one is."""
        base = tensor._base if tensor._is_view() else tensor
        return any(copy is base for copy, *_ in self._copies)

    def _index_select(self, func, args, kwargs):
        out = self._recorder.run(func, *args, **kwargs)
        # The view of eager shares the memory of the whole tensor.
        return self._recorder.laid_out(out, args[0].stride()) if self._is_taking else out

    def name(self, x, indices: tuple, result) -> None:
        """Notes that ``result`` is ``x[indices]``."""
        self._results[id(result)] = x, _named(indices), result

    def is_same(self, x, indices: tuple, value) -> bool:
        """Whether ``value`` is ``x[indices]`` itself, as in what ``x[i] += 1`` does last."""
        known = self._results.get(id(value))
        return known is not None and known[0] is x and _same(known[1], _named(indices))

    def write_back(self) -> None:
        """Writes to the whole what a function has changed in a copy."""
        if not self._copies or self._changes == self._recorder.changes:
            return
        for entry in reversed(self._copies):
            copy, version, whole, dim, positions = entry
            if copy._version != version:
                with self._recorder.writing_back():
                    whole.index_copy_(dim, positions, copy.clone())
                entry[1] = copy._version
        self._changes = self._recorder.changes


def has_history(pick) -> bool:
    """Whether autograd has seen a pick, which is a node, or the tensor that it is a view of."""
    return any(tensor.requires_grad for tensor in pick.meta["picked"])


def _named(indices: tuple) -> list[tuple]:
    return [(index, index._version if isinstance(index, torch.Tensor) else 0)
            for index in indices]


def _same(some: list[tuple], others: list[tuple]) -> bool:
    return len(some) == len(others) and all(
        a is b and v == w or type(a) in (slice, int) and type(a) is type(b) and a == b
        for (a, v), (b, w) in zip(some, others))
