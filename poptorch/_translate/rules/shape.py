"""Rules for views and for ops that make or move data: few op rows serve many ATen names."""

import torch

from poptorch import _C
from poptorch._translate import opaque
from poptorch._translate.rules.elementwise import operand
from poptorch._translate.rules.registry import register


@register("aten::view", "aten::reshape", "aten::_unsafe_view", "aten::unsqueeze", "aten::squeeze",
          "aten::_reshape_alias", "aten::view_copy", "aten::unsqueeze_copy", "aten::squeeze_copy")
def _reshape(e, node, x, *args, **kwargs):
    if "nop" in node.meta:
        return e.op("nop", x)
    return e.reshape(x, node.meta["val"].shape)


@register("aten::permute", "aten::permute_copy")
def _permute(e, node, x, dims):
    rank = len(x.sizes)
    dims = [d % rank for d in dims]
    return x if dims == list(range(rank)) else e.op("permute", x, dims=dims)


@register("aten::transpose", "aten::transpose_copy")
def _transpose(e, node, x, dim0, dim1):
    dims = list(range(len(x.sizes)))
    if dims:
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return _permute(e, node, x, dims)


@register("aten::t", "aten::t_copy")
def _t(e, node, x):
    return _permute(e, node, x, list(reversed(range(len(x.sizes)))))


@register("aten::expand", "aten::expand_copy")
def _expand(e, node, x, *args, **kwargs):
    return e.expand(x, node.meta["val"].shape)


def _range(size: int, start, end) -> tuple[int, int]:
    start = 0 if start is None else start
    end = size if end is None else end
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    start = min(max(start, 0), size)
    return start, min(max(end, start), size)


@register("aten::slice", "aten::slice_copy")
def _slice(e, node, x, dim=0, start=None, end=None, step=1):
    dim %= len(x.sizes)
    start, end = _range(x.sizes[dim], start, end)
    return e.slice(x, dim, start, end, step)


def _selected(e, x, dim: int, index: int):
    dim %= len(x.sizes)
    index %= x.sizes[dim]
    sizes = list(x.sizes)
    del sizes[dim]
    return e.reshape(e.slice(x, dim, index, index + 1), sizes)


@register("aten::select", "aten::select_copy")
def _select(e, node, x, dim, index):
    return _selected(e, x, dim, index)


@register("aten::unbind", "aten::unbind_copy")
def _unbind(e, node, x, dim=0):
    return [_selected(e, x, dim, i) for i in range(x.sizes[dim])]


@register("aten::split", "aten::split_with_sizes", "aten::unsafe_split", "aten::split_copy",
          "aten::split_with_sizes_copy", "aten::unsafe_split_with_sizes")
def _split(e, node, x, _, dim=0):
    dim %= len(x.sizes)
    parts, start = [], 0
    for part in node.meta["val"]:
        end = start + part.shape[dim]
        parts.append(e.slice(x, dim, start, end))
        start = end
    return parts


@register("aten::slice_scatter")
def _slice_scatter(e, node, x, src, dim=0, start=None, end=None, step=1):
    dim %= len(x.sizes)
    start, end = _range(x.sizes[dim], start, end)
    src = e.cast(src, e.dtype_of(x))
    if (start, end, step) == (0, x.sizes[dim], 1):
        return src
    return e.op("slice_scatter", x, src, dim=dim, start=start, end=end, step=step)


@register("aten::diagonal_scatter")
def _diagonal_scatter(e, node, x, src, offset=0, dim1=0, dim2=1):
    return e.op("diagonal_scatter", x, e.cast(src, e.dtype_of(x)), offset=offset, dim1=dim1,
                dim2=dim2)


@register("aten::select_scatter")
def _select_scatter(e, node, x, src, dim, index):
    dim %= len(x.sizes)
    index %= x.sizes[dim]
    src = e.expand(e.cast(src, e.dtype_of(x)), [s for i, s in enumerate(x.sizes) if i != dim])
    sizes = list(x.sizes)
    sizes[dim] = 1
    return e.op("slice_scatter", x, e.reshape(src, sizes), dim=dim, start=index, end=index + 1,
                step=1)


def _zeros_with(e, grad, sizes, dim: int, start: int, end: int, step: int):
    sizes = list(sizes)
    if (start, end, step) == (0, sizes[dim], 1):
        return grad
    return e.op("slice_backward", grad, input_sizes=sizes, dim=dim, start=start, end=end,
                step=step)


@register("aten::slice_backward")
def _slice_backward(e, node, grad, input_sizes, dim, start, end, step):
    dim %= len(input_sizes)
    start, end = _range(input_sizes[dim], start, end)
    return _zeros_with(e, grad, input_sizes, dim, start, end, step)


@register("aten::select_backward")
def _select_backward(e, node, grad, input_sizes, dim, index):
    dim %= len(input_sizes)
    index %= input_sizes[dim]
    sizes = list(input_sizes)
    sizes[dim] = 1
    return _zeros_with(e, e.reshape(grad, sizes), input_sizes, dim, index, index + 1, 1)


def _kept(node, tensors: list) -> tuple[list, torch.dtype]:
    dtype = node.meta["val"].dtype
    # Empty 1-d tensors are allowed among tensors of any rank.
    rank = len(node.meta["val"].shape)
    return [t for t in tensors if len(t.sizes) == rank], dtype


@register("aten::cat")
def _cat(e, node, tensors, dim=0):
    tensors, dtype = _kept(node, tensors)
    tensors = [e.cast(t, dtype) for t in tensors]
    return tensors[0] if len(tensors) == 1 else e.ops("cat", tensors,
                                                      {"dim": dim % len(tensors[0].sizes)})[0]


@register("aten::stack")
def _stack(e, node, tensors, dim=0):
    dtype, rank = node.meta["val"].dtype, len(node.meta["val"].shape)
    dim %= rank
    sizes = list(tensors[0].sizes)
    sizes.insert(dim, 1)
    parts = [e.reshape(e.cast(t, dtype), sizes) for t in tensors]
    return parts[0] if len(parts) == 1 else e.ops("cat", parts, {"dim": dim})[0]


def _filled(value):
    def rule(e, node, *args, **kwargs):
        val = node.meta["val"]
        return e.full(val.shape, value, val.dtype)
    return rule


for _kind, _value in (("zeros", 0), ("ones", 1), ("empty", 0)):
    for _name in (f"aten::{_kind}", f"aten::{_kind}_like", f"aten::new_{_kind}"):
        register(_name)(_filled(_value))
for _name in ("aten::empty_strided", "aten::new_empty_strided", "aten::empty_permuted"):
    register(_name)(_filled(0))


@register("aten::full", "aten::full_like")
def _full(e, node, _, fill_value, *args, **kwargs):
    return _fill_with(e, node.meta["val"], fill_value)


@register("aten::new_full")
def _new_full(e, node, x, size, fill_value, **kwargs):
    return _fill_with(e, node.meta["val"], fill_value)


def _fill_with(e, val, value):
    if isinstance(value, _C.Value):
        return e.expand(operand(e, value, val.dtype), val.shape)
    return e.full(val.shape, value, val.dtype)


@register("aten::fill")
def _fill(e, node, x, value):
    return _fill_with(e, node.meta["val"], value)


@register("aten::zero")
def _zero(e, node, x):
    return e.full(x.sizes, 0, node.meta["val"].dtype)


@register("aten::scalar_tensor")
def _scalar_tensor(e, node, value, *args, **kwargs):
    return e.constant(value, node.meta["val"].dtype)


@register("aten::arange", "aten::arange.start", "aten::arange.start_step", "aten::linspace",
          "aten::eye", "aten::tril_indices", "aten::triu_indices", "aten::logspace",
          "aten::hann_window", "aten::hamming_window")
def _evaluated(e, node, *args, **kwargs):
    """An op of numbers alone: its value is known now."""
    if any(isinstance(argument, _C.Value) for argument in args):
        return opaque.emit(e, node, *args, **kwargs)
    kwargs = {**kwargs, "device": "cpu"} if "device" in kwargs else kwargs
    return e.constant(node.target(*args, **kwargs), node.meta["val"].dtype)


@register("aten::scatter.value")
def _scatter_value(e, node, x, dim, index, value):
    dtype = node.meta["val"].dtype
    src = e.full(index.sizes, value, dtype)
    return e.op("scatter", e.cast(x, dtype), index, src, dim=dim % max(1, len(x.sizes)))


@register("aten::index_put", "aten::_unsafe_index_put")
def _index_put(e, node, x, indices, values, accumulate=False):
    values = operand(e, values, e.dtype_of(x))
    return e.ops("index_put", [x, values, *indices], {"accumulate": accumulate})[0]
