"""Rules for what sees the memory of tensors: elements by position, and the bits of numbers."""

import math

import torch

from poptorch import _C
from poptorch._base.layout import positions
from poptorch._base.types import ir_dtype, narrowed
from poptorch._translate.rules.registry import register
from poptorch.errors import error_at


def _in_rows(size, stride) -> tuple[list[int], int] | None:
    """How a window is a slice in other words: its dimensions in the order of the slice, and the
    step of the slice; None where it is no slice. No dimension has size 0 or (but of size 1)
    stride 0."""
    wide = sorted((d for d, n in enumerate(size) if n > 1), key=lambda d: -stride[d])
    first = step = stride[wide[-1]] if wide else 1
    for d in reversed(wide):
        if stride[d] != step or step < 1:
            return None
        step *= size[d]
    return [d for d, n in enumerate(size) if n == 1] + wide, first


def _index(e, size, stride, offset):
    places = torch.from_numpy(positions(size, stride, offset).reshape(-1))
    return e.constant(places, torch.int64)


@register("poptorch::elements")
def _elements(e, node, x, size, stride, offset):
    if 0 in size:
        return e.full(size, 0, e.dtype_of(x))
    # A dimension of stride 0 repeats what is taken once.
    once = [1 if step == 0 else n for n, step in zip(size, stride)]
    rows = _in_rows(once, stride)
    if rows is None:
        index = _index(e, once, stride, offset)
        taken = e.reshape(e.op("index_select", x, index, dim=0), once)
        return e.expand(taken, size)
    dims, step = rows
    end = offset + (math.prod(once) - 1) * step + 1
    taken = e.reshape(e.slice(x, 0, offset, end, step), [once[d] for d in dims])
    if dims != sorted(dims):
        taken = e.op("permute", taken, dims=[dims.index(d) for d in range(len(dims))])
    return e.expand(taken, size)


@register("poptorch::elements_scatter")
def _elements_scatter(e, node, x, src, size, stride, offset):
    if 0 in size:
        return x
    src = e.expand(e.cast(src, e.dtype_of(x)), size)
    count = math.prod(size)
    rows = _in_rows(size, stride)
    if rows is None:
        index = _index(e, size, stride, offset)
        return e.op("index_put", x, e.reshape(src, [count]), index, accumulate=False)
    dims, step = rows
    end = offset + (count - 1) * step + 1
    if dims != sorted(dims):
        src = e.op("permute", src, dims=dims)
    src = e.reshape(src, [count])
    if (offset, end, step) == (0, x.sizes[0], 1):
        return src
    return e.op("slice_scatter", x, src, dim=0, start=offset, end=end, step=step)


@register("aten::view.dtype")
def _view_dtype(e, node, x, dtype):
    source = node.args[0].meta["val"].dtype
    if dtype is torch.bool and source is not torch.bool:
        # A bool has two values, whatever its byte.
        return e.cast(_view_dtype(e, node, x, torch.uint8), dtype)
    if source is dtype:
        return x
    for given in (source, dtype):
        if narrowed(given) is not given:
            raise error_at(
                f"[translate] view({dtype}) of a tensor of {source} uses the bits of {given}, "
                f"which is {narrowed(given)} on the device and has others. Convert the values "
                f"with .to() before, or do this outside of forward.",
                node.meta["place"], node.meta["module"])
    return e.op("bitcast", x, dtype=_C.DType(ir_dtype(dtype)))
