"""Writing tensors to the places that a mask selects.

How many these are is known at run time only. Values that are the same for each of them are chosen
by ``torch.where``; of others there are as many as places.
"""

import torch


def is_mask(index) -> bool:
    """Whether an index is a mask of at least one dimension."""
    return (isinstance(index, torch.Tensor) and index.dim() > 0
            and index.dtype in (torch.bool, torch.uint8))


def _is_basic(index) -> bool:
    return index is None or index is ... or isinstance(index, (int, slice)) \
        and not isinstance(index, bool)


def set_at_mask(capture, x, indices: tuple, value):
    """``x[indices] = value``, where one index is a mask and the others are no tensors.

    Returns:
        None, or NotImplemented where torch is to do it, or to refuse it.
    """
    numbers = [number for number, index in enumerate(indices) if is_mask(index)]
    if len(numbers) != 1 or not isinstance(value, torch.Tensor) or value.numel() == 1:
        return NotImplemented
    number, mask = numbers[0], indices[numbers[0]]
    others = (*indices[:number], *indices[number + 1:])
    if not all(map(_is_basic, others)) or sum(index is ... for index in others) > 1:
        return NotImplemented
    left = x.dim() - mask.dim() - sum(isinstance(index, (int, slice)) for index in others)
    if left < 0:
        return NotImplemented
    view = x[(*indices[:number], *[slice(None)] * mask.dim(), *indices[number + 1:])]
    before = sum(left if index is ... else not isinstance(index, int) for index in indices[:number])
    while value.dim() > view.dim() - mask.dim() + 1 and value.shape[0] == 1:
        value = value.squeeze(0)
    return _put(capture, view, mask, before, value)


def _put(capture, view, mask, at: int, value, accumulate: bool = False):
    """Writes to ``view`` where a mask of its dimensions from ``at`` on is true."""
    dims = mask.dim()
    sizes = [*view.shape[:at], -1, *view.shape[at + dims:]]  # of what the mask selects
    if mask.shape != view.shape[at:at + dims] or value.dtype != view.dtype:
        return NotImplemented
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
    view.permute(order).index_put_((mask,), value.expand(sizes).movedim(at, 0), accumulate)
    return None


def _index_put_(capture, func, args, kwargs):
    x, indices, value, accumulate = _arguments(*args, **kwargs)
    numbers = [number for number, index in enumerate(indices) if index is not None]
    if len(numbers) != 1 or not is_mask(indices[numbers[0]]) or value.numel() == 1 \
            or x.dim() < numbers[0] + indices[numbers[0]].dim() \
            or value.dim() > x.dim() - indices[numbers[0]].dim() + 1:
        return NotImplemented
    done = _put(capture, x, indices[numbers[0]], numbers[0], value, accumulate)
    return done if done is NotImplemented else x


def _index_put(capture, func, args, kwargs):
    x, *rest = _arguments(*args, **kwargs)
    x = x.clone()
    return _index_put_(capture, func, (x, *rest), {})


def _arguments(input, indices, values, accumulate=False):
    return input, indices, values, accumulate


HANDLERS = {
    torch.Tensor.index_put_: _index_put_,
    torch.index_put_: _index_put_,
    torch.Tensor.index_put: _index_put,
    torch.index_put: _index_put,
}
