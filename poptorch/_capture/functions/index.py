"""Indexing by integer tensors without dimensions, whose value torch itself reads.

``x[i]`` is a view of ``x`` in eager, see ``picks``.
"""

import functools
import itertools
import operator

import torch

from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._capture.functions.mask import is_mask, read_at_mask, set_at_mask
from poptorch._capture.graph.constant_values import with_known_values


def _is_number(index) -> bool:
    return (fake_tensors.is_fake(index) and index.dim() == 0
            and not index.is_floating_point() and not index.is_complex()
            and index.dtype is not torch.bool)


def _consumed(index) -> int | None:
    """How many dimensions an index is for; None for those that are left to torch."""
    if index is None:
        return 0
    if isinstance(index, torch.Tensor):
        return index.dim() if index.dtype is torch.bool else 1
    if isinstance(index, bool) or not isinstance(index, (int, slice)):
        return None
    return 1


def _dims(x, indices: tuple) -> list[int] | None:
    """The dimension of ``x`` that each index begins at; None where torch decides."""
    counts = [0 if index is ... else _consumed(index) for index in indices]
    if None in counts or sum(index is ... for index in indices) > 1 or sum(counts) > x.dim():
        return None
    dims, at = [], 0
    for index, count in zip(indices, counts):
        dims.append(at)
        at += x.dim() - sum(counts) if index is ... else count
    return dims


def _position(x, dim: int, index):
    """``index`` counted from the beginning, as a tensor of one element."""
    index = index.long()
    return torch.where(index < 0, index + x.shape[dim], index).reshape(1)


def _indices(capture, func, given) -> tuple:
    """The indices of an index; bounds of slices that are tensors with a value as numbers."""
    indices = []
    for index in given if isinstance(given, tuple) else (given,):
        bounds = (index.start, index.stop, index.step) if isinstance(index, slice) else ()
        indices.append(slice(*_known_bounds(capture, f"[Tensor.{func.__name__}] a slice", bounds))
                       if _has_fake(bounds) else _tensor_of(index))
    return tuple(indices)


def _known_bounds(capture, what: str, bounds: tuple) -> list:
    known = with_known_values(capture.recorder, bounds)
    if _has_fake(known):
        raise capture.recorder.error(
            f"{what} has a tensor as a bound, but forward is compiled before there are values. Use "
            f"poptorch.dynamic_slice(tensor, dim, start, size, step) to read and "
            f"poptorch.dynamic_update to write: the start may be a tensor, the size is a number.")
    with private.without_modes():
        return [operator.index(bound) if isinstance(bound, torch.Tensor) else bound
                for bound in known]


def _has_fake(bounds: tuple) -> bool:
    return any(fake_tensors.is_fake(bound) for bound in bounds)


def _tensor_of(index):
    """A list of bools, which stands for a mask, as a tensor; bytes, which torch's rule for tensors
    without values takes for positions, as the bools that they stand for."""
    if isinstance(index, torch.Tensor) and index.dtype is torch.uint8:
        return index.bool()
    if isinstance(index, list) and index and all(type(item) is bool for item in index):
        with private.without_modes():
            return torch.tensor(index)
    return index


def _narrow_at(capture, input, dim: int, start, length: int):
    """Elements at a place that the program computes."""
    size, first = input.shape[dim], _position(input, dim, start)
    if length == 0:
        capture.recorder.checks.require(
            ((0 <= first) & (first <= size)).all(), f"[narrow] start is out of range: dimension "
            f"{dim} has {size} entries. Pass a start from {-size} to {size}.")
        return input.narrow(dim, 0, 0)
    first = torch.where(first < 0, size, first)  # out of range, as it is in eager
    return capture.recorder.picks.take(input, dim, first + torch.arange(length))


def _narrow(capture, func, input, dim, start, length):
    if not _has_fake((start, length)):
        return NotImplemented
    if _has_fake(with_known_values(capture.recorder, (start,))) and _is_number(start) \
            and dim in range(-input.dim(), input.dim()) \
            and type(length) is int and 0 <= length <= input.shape[dim]:
        return _narrow_at(capture, input, dim % input.dim(), start, length)
    return func(input, dim, *_known_bounds(capture, "[narrow] narrow", (start, length)))


def _getitem(capture, func, x, given):
    indices = _indices(capture, func, given)
    if any(map(is_mask, indices)):
        out = read_at_mask(capture, x, indices)
        if out is not NotImplemented:
            return out
    if not any(map(_is_number, indices)):
        plain = given if isinstance(given, tuple) else (given,)
        return NotImplemented if all(map(operator.is_, indices, plain)) else x[indices]
    dims = _dims(x, indices)
    if dims is None:
        return NotImplemented
    picks, whole = capture.recorder.picks, x
    for index, dim in reversed(list(zip(indices, dims))):
        if _is_number(index):
            x = picks.take(x, dim, _position(x, dim, index)).squeeze(dim)
    rest = tuple(index for index in indices if not _is_number(index))
    out = x[rest] if rest else x
    picks.name(whole, indices, out)
    return out


def _is_mask(index) -> bool:
    return fake_tensors.is_fake(index) and index.dim() == 0 and index.dtype is torch.bool


def _write_if(x, masks: list, rest: tuple, value):
    """``x[masks, rest] = value`` where all masks are true."""
    view = x[rest] if rest else x
    if not isinstance(value, torch.Tensor):
        value = torch.full((), value, dtype=view.dtype)
    while value.dim() > view.dim() and value.shape[0] == 1:
        value = value.squeeze(0)
    mask = functools.reduce(torch.logical_and, masks)
    view.copy_(torch.where(mask, value.to(view.dtype).expand_as(view), view))


def _setitem(capture, func, x, given, value):
    indices = _indices(capture, func, given)
    if set_at_mask(capture, x, indices, value) is not NotImplemented:
        return None
    masks = list(itertools.takewhile(_is_mask, indices))
    if masks and all(index is None or index is ... or isinstance(index, (int, slice))
                     and not isinstance(index, bool) for index in indices[len(masks):]):
        return _write_if(x, masks, indices[len(masks):], value)
    if not any(map(_is_number, indices)) or _dims(x, indices) is None:
        return func(x, given, _constant_of(x, value))
    if capture.recorder.picks.is_same(x, indices, value):
        return None
    rest = [slice(None) if _is_number(index) else index for index in indices]
    if any(isinstance(index, torch.Tensor) for index in rest):
        return func(x, given, _constant_of(x, value))
    # The index with more dimensions before it: none are taken away, but by integers.
    view, numbers, dim = x[tuple(rest)], [], 0
    for index in indices:
        if index is ...:
            dim += x.dim() - sum(_consumed(i) for i in indices if i is not ...)
        elif _is_number(index):
            numbers.append((dim, index))
        dim += index is None or isinstance(index, slice) or _is_number(index)
    taken = [dim for dim, _ in numbers]
    sizes = [1 if dim in taken else size for dim, size in enumerate(view.shape)]
    _write(view, numbers, _shaped(view, value, sizes, taken))
    return None


def _constant_of(x, value):
    """The value that is written to ``x``: a number becomes a tensor, as in torch before 2.15. For
    numbers torch 2.15 has ``index_fill_``, which takes more operations than ``index_put_``."""
    if isinstance(value, torch.Tensor):
        return value
    with private.without_modes():
        constant = torch.empty((), dtype=x.dtype)
        constant[...] = value  # or refuses it with eager's words
    return torch.ops.aten.lift_fresh(constant)


def _shaped(view, value, sizes: list[int], taken: list[int]):
    """``value`` as a tensor of ``sizes``; it has no dimension for those ``taken``."""
    if not isinstance(value, torch.Tensor):
        return torch.full(sizes, value, dtype=view.dtype)
    left = [size for dim, size in enumerate(sizes) if dim not in taken]
    while value.dim() > len(left) and value.shape[0] == 1:
        value = value.squeeze(0)
    return value.to(view.dtype).expand(left).reshape(sizes)


def _write(x, numbers: list, value) -> None:
    """Writes ``value`` to ``x`` where each of the ``(dim, index)`` says."""
    (dim, index), *others = numbers
    position = _position(x, dim, index)
    if others:
        part = x.index_select(dim, position)
        _write(part, others, value)
        value = part
    x.index_copy_(dim, position, value)


HANDLERS = {
    torch.Tensor.__getitem__: _getitem,
    torch.Tensor.__setitem__: _setitem,
    torch.Tensor.narrow: _narrow,
    torch.narrow: _narrow,
}
