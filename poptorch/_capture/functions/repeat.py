"""Functions to which a tensor says how long results are: where its values are known, or the program
says how long they become."""

import torch

from poptorch._base.torch_private import tracing as private
from poptorch._capture.graph.constant_values import known_value
from poptorch._capture.library.value_checks import checked


def _repeat_interleave(capture, func, input=None, repeats=None, dim=None, *, output_size=None):
    """``input`` with each of its parts as often as ``repeats`` says; ``repeats`` alone gives the
    numbers of the parts."""
    if repeats is None:
        input, repeats = None, input
    if not isinstance(repeats, torch.Tensor):
        return NotImplemented
    x = input.reshape(-1) if input is not None and dim is None else input
    size = repeats.numel() if x is None else x.shape[dim or 0] if x.dim() else 1
    if repeats.dim() > 1 or repeats.numel() not in (1, size) or repeats.is_floating_point():
        return NotImplemented  # torch refuses it
    each = repeats.reshape(-1).expand(size)
    known = known_value(capture.recorder, each)
    if known is not None:
        with private.without_modes():
            numbers = torch.repeat_interleave(known)
        if output_size not in (None, len(numbers)):
            raise capture.recorder.error(
                f"[repeat_interleave] output_size is {output_size}, but the repeats add up to "
                f"{len(numbers)}. Pass the sum of the repeats.")
    elif output_size is None:
        return NotImplemented  # the shape depends on values
    else:
        numbers = _numbers(each, output_size)
    return numbers if x is None else x.index_select(dim or 0, numbers)


def _numbers(repeats, count: int):
    """The number of each part, as often as its repeats say, which add up to ``count``."""
    ends = repeats.long().cumsum(0)
    numbers = torch.searchsorted(ends, torch.arange(count), right=True).to(repeats.dtype)
    return checked(numbers, (repeats.sum() == count) & (repeats >= 0).all(),
                   f"[repeat_interleave] output_size is {count}, but the repeats add up to another "
                   f"number, or one of them is negative. Pass the sum of the repeats.")


def _tensor_split(capture, func, /, *args, **kwargs):
    names = ("indices_or_sections", "tensor_indices_or_sections")
    given = args[1] if len(args) > 1 else next((kwargs[n] for n in names if n in kwargs), None)
    if not isinstance(given, torch.Tensor):
        return NotImplemented
    known = known_value(capture.recorder, given)
    if known is None:
        raise capture.recorder.error(
            "[tensor_split] the places at which it splits are a tensor, but forward is compiled "
            "before there are values. Pass a list of numbers.")
    rest = {name: value for name, value in kwargs.items() if name not in names}
    return func(args[0], known.tolist(), *args[2:], **rest)


HANDLERS = {
    torch.repeat_interleave: _repeat_interleave,
    torch.Tensor.repeat_interleave: _repeat_interleave,
    torch.tensor_split: _tensor_split,
    torch.Tensor.tensor_split: _tensor_split,
}
