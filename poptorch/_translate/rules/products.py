"""The rule for matrix products in parts, which are computed one after the other."""

import torch

from poptorch._translate.rules.registry import register

_HALVES = (torch.float16, torch.bfloat16)


@register("poptorch::serialized_matmul")
def _serialized_matmul(e, node, lhs, rhs, cut, factor, keep_precision):
    rank, dtype = len(lhs.sizes), e.dtype_of(lhs)
    notes = {"serialization": [cut, factor]}
    rows, columns = rank - 2, rank - 1
    if cut == 0:
        parts = (e.op("matmul", part, rhs, **notes) for part in _cut(e, lhs, rows, factor))
        return _joined(e, node, parts, rows, factor)
    if cut == 2:
        parts = (e.op("matmul", lhs, part, **notes) for part in _cut(e, rhs, columns, factor))
        return _joined(e, node, parts, columns, factor)
    wide = torch.float32 if keep_precision and dtype in _HALVES else dtype
    total, adding = None, "addmm" if rank == 2 else "baddbmm"
    for left, right in zip(_cut(e, lhs, columns, factor), _cut(e, rhs, rows, factor)):
        left, right = e.cast(left, wide), e.cast(right, wide)
        total = e.op("matmul", left, right, **notes) if total is None else \
            e.op(adding, total, left, right, **notes)
    return e.cast(total, dtype)


def _cut(e, x, dim: int, factor: int):
    """Equal parts of a tensor, each made when it is asked for."""
    size = x.sizes[dim] // factor
    for start in range(0, x.sizes[dim], size):
        yield e.slice(x, dim, start, start + size)


def _joined(e, node, parts, dim: int, factor: int):
    """The parts side by side. Each goes to its place at once, so that one at a time is there."""
    sizes = list(node.meta["val"].shape)
    total, size = None, sizes[dim] // factor
    for index, part in enumerate(parts):
        place = {"dim": dim, "start": index * size, "end": (index + 1) * size, "step": 1}
        total = e.op("slice_backward", part, input_sizes=sizes, **place) if total is None else \
            e.op("slice_scatter", total, part, **place)
    return total
