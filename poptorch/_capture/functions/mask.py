"""Reading and writing at the places that a mask selects.

How many these are is known at run time only, but for masks computed from constants. What is read is
a selection, see ``selections``. Of what is written, values that are the same for each place and
selections by the same mask are chosen by ``torch.where``; of others there are as many as places.
"""

import torch

from poptorch._base.torch_private import tracing as private
from poptorch._capture.functions.selections import Selection, selected
from poptorch._capture.graph.constant_values import known_value
from poptorch._capture.library.saved_for_backward import keep, kept


def is_mask(index) -> bool:
    """Whether an index is a mask of at least one dimension."""
    return (isinstance(index, torch.Tensor) and index.dim() > 0
            and index.dtype in (torch.bool, torch.uint8))


def _is_basic(index) -> bool:
    return index is None or index is ... or isinstance(index, (int, slice)) \
        and not isinstance(index, bool)


def _view_at(x, indices: tuple) -> tuple | None:
    """Of ``x[indices]``, where one index is a mask and the others are no tensors: a view of ``x``
    that the mask alone is to be used on, the mask, and how many dimensions stand before it; else
    None."""
    numbers = [number for number, index in enumerate(indices) if is_mask(index)]
    if len(numbers) != 1:
        return None
    number, mask = numbers[0], indices[numbers[0]]
    others = (*indices[:number], *indices[number + 1:])
    if not all(map(_is_basic, others)) or sum(index is ... for index in others) > 1:
        return None
    left = x.dim() - mask.dim() - sum(isinstance(index, (int, slice)) for index in others)
    if left < 0:
        return None
    view = x[(*indices[:number], *[slice(None)] * mask.dim(), *indices[number + 1:])]
    before = sum(left if index is ... else not isinstance(index, int) for index in indices[:number])
    return view, mask, before


def read_at_mask(capture, x, indices: tuple):
    """``x[indices]`` as a selection, where one index is a mask and the others are no tensors; or
    NotImplemented."""
    found = _view_at(x, indices)
    if found is None:
        return NotImplemented
    view, mask, before = found
    if mask.shape != view.shape[before:before + mask.dim()]:
        return NotImplemented
    known = known_value(capture.recorder, mask)
    if known is not None:
        with private.without_modes():
            places = known.nonzero().unbind(1)
        return view[(*[slice(None)] * before, *places)]
    return selected(capture, view, mask, before)


def set_at_mask(capture, x, indices: tuple, value):
    """``x[indices] = value``, where one index is a mask and the others are no tensors; or
    NotImplemented."""
    is_filled = _is_kept_by(x.dtype, value)
    if not (is_filled or _is_of_places(value)) or (found := _view_at(x, indices)) is None:
        return NotImplemented
    view, mask, before = found
    if is_filled:
        return _fill(view, mask, before, value)
    if not isinstance(value, Selection):
        while value.dim() > view.dim() - mask.dim() + 1 and value.shape[0] == 1:
            value = value.squeeze(0)
    return _put(capture, view, mask, before, value)


def _is_kept_by(dtype: torch.dtype, value) -> bool:
    """Whether a value is a Python number whose kind tensors of a dtype hold."""
    if dtype.is_floating_point:
        return type(value) in (float, int)
    if dtype.is_complex:
        return False
    return type(value) is (bool if dtype is torch.bool else int)


def _fill(view, mask, at: int, value):
    """Writes a number to ``view``, as :func:`_put`. Torch records it so only since 2.15."""
    if mask.shape != view.shape[at:at + mask.dim()]:
        return NotImplemented
    behind = view.dim() - at - mask.dim()
    view.masked_fill_(mask.reshape(*mask.shape, *[1] * behind) if behind else mask, value)
    return None


def _is_of_places(value) -> bool:
    """Whether a value that is written may have an element for each place of a mask."""
    return isinstance(value, Selection) or isinstance(value, torch.Tensor) and value.numel() != 1


def _put(capture, view, mask, at: int, value, accumulate: bool = False):
    """Writes to ``view`` where a mask of its dimensions from ``at`` on is true; or returns
    NotImplemented."""
    if mask.shape != view.shape[at:at + mask.dim()]:
        return NotImplemented
    put = _put_selection if isinstance(value, Selection) else _put_values
    return put(capture, view, mask, at, value, accumulate)


def _put_selection(capture, view, mask, at: int, value: Selection, accumulate: bool):
    full = value.full
    if full.dim() > view.dim() or not value.fits(capture, mask, view.dim() - at - mask.dim()):
        return NotImplemented
    if full.dtype is not view.dtype:
        raise capture.recorder.error(
            f"[index_put] values of {full.dtype} are written to a tensor of {view.dtype}. Cast "
            f"them: `.to({view.dtype})`.")
    full = view + full if accumulate else full
    view.copy_(torch.where(value.mask.beside(value.behind), full, view))
    return None


def _put_values(capture, view, mask, at: int, value, accumulate: bool):
    if value.dtype != view.dtype:
        return NotImplemented
    dims = mask.dim()
    sizes = [*view.shape[:at], -1, *view.shape[at + dims:]]  # of what the mask selects
    shape = [*[1] * (len(sizes) - value.dim()), *value.shape]
    if len(shape) > len(sizes) or any(size not in (1, own) for size, own in zip(shape, sizes)
                                      if own != -1):
        raise capture.recorder.error(
            f"[index_put] values of the shape {list(value.shape)} do not fit what the mask of the "
            f"shape {list(mask.shape)} selects, {str(sizes).replace('-1', 'count')}. Give values "
            f"that broadcast to it.")
    value, mask, count = value.reshape(shape), mask.bool(), shape[at]
    if count == 1:
        value = value.reshape(*shape[:at], *[1] * dims, *shape[at + 1:])
        mask = mask.reshape(*mask.shape, *[1] * (view.dim() - at - dims))
        view.copy_(torch.where(mask, view + value if accumulate else value, view))
        return None
    sizes[at] = count
    order = list(range(view.dim()))
    order = [*order[at:at + dims], *order[:at], *order[at + dims:]]
    view, value = view.permute(order), value.expand(sizes).movedim(at, 0)
    if value.requires_grad and torch.is_grad_enabled():
        view.copy_(_WrittenAtMask.apply(view, mask, value, accumulate))
    else:
        view.index_put_((mask,), value, accumulate)
    return None


class _WrittenAtMask(torch.autograd.Function):
    """``index_put`` by a mask, with the gradient of the values that are written."""

    @staticmethod
    def forward(ctx, x, mask, value, accumulate):
        ctx.set_materialize_grads(False)
        keep(ctx, mask)
        ctx.count, ctx.accumulate = value.shape[0], accumulate
        return x.index_put((mask,), value, accumulate)

    @staticmethod
    def backward(ctx, gradient):
        if gradient is None:
            return None, None, None, None
        mask, = kept(ctx)
        flat, size = mask.reshape(-1), mask.numel()
        # The place of each value; those that the mask leaves out come behind them.
        number = torch.where(flat, flat.cumsum(0) - 1, ctx.count)
        places = torch.zeros(ctx.count + 1, dtype=torch.int64)
        places = places.scatter(0, number, torch.arange(size))[:ctx.count]
        written = gradient.flatten(0, mask.dim() - 1).index_select(0, places)
        if not ctx.accumulate:
            mask = mask.reshape(*mask.shape, *[1] * (gradient.dim() - mask.dim()))
            gradient = gradient.masked_fill(mask, 0)
        return gradient, None, written, None


def _index_put_(capture, func, input, indices, values, accumulate=False):
    given = [(number, index) for number, index in enumerate(indices) if index is not None]
    if len(given) != 1 or not is_mask(given[0][1]) or not _is_of_places(values):
        return NotImplemented
    (number, mask), = given
    if not isinstance(values, Selection) and values.dim() > input.dim() - mask.dim() + 1:
        return NotImplemented
    done = _put(capture, input, mask, number, values, accumulate)
    return done if done is NotImplemented else input


def _index_put(capture, func, input, indices, values, accumulate=False):
    return _index_put_(capture, func, input.clone(), indices, values, accumulate)


def _masked_select(capture, func, input, mask, *, out=None):
    if mask.dtype is not torch.bool or out is not None:
        return NotImplemented  # torch has the words for it
    x, mask = torch.broadcast_tensors(input, mask)
    return read_at_mask(capture, x, (mask,)) if x.dim() else NotImplemented


def _nonzero(capture, func, input, *, out=None, as_tuple=False):
    """The places of what is not zero, where a tensor is computed from constants."""
    known = None if out is not None else known_value(capture.recorder, input)
    if known is None:
        return NotImplemented
    with private.without_modes():
        places = known.nonzero()
    places = torch.ops.aten.lift_fresh(places)
    return places.unbind(1) if as_tuple or func is torch.where else places


def _where(capture, func, /, *args, **kwargs):
    """``torch.where`` of a condition alone gives the places where it is true."""
    is_alone = len(args) == 1 and not kwargs and isinstance(args[0], torch.Tensor)
    return _nonzero(capture, func, args[0]) if is_alone else NotImplemented


WRITES = {
    torch.Tensor.index_put_: _index_put_,
    torch.index_put_: _index_put_,
    torch.Tensor.index_put: _index_put,
    torch.index_put: _index_put,
}

HANDLERS = {
    **WRITES,
    torch.Tensor.masked_select: _masked_select,
    torch.masked_select: _masked_select,
    **dict.fromkeys((torch.nonzero, torch.Tensor.nonzero, torch.argwhere, torch.Tensor.argwhere),
                    _nonzero),
    torch.where: _where,
}
