"""Rules for reductions and small linear algebra."""

import torch

from poptorch import _C
from poptorch._base.types import ir_dtype, unrounded
from poptorch._translate.rules.elementwise import square
from poptorch._translate.rules.registry import register


def _dims(x, dim):
    rank = len(x.sizes)
    if dim is None or dim == []:
        return None
    dims = dim if isinstance(dim, list) else [dim]
    return [d % max(1, rank) for d in dims] if rank else None


def _sum_like(name):
    def rule(e, node, x, dim=None, keepdim=False, dtype=None):
        result = node.meta["val"].dtype
        # Small integers wrap around in the end as they do at each step.
        dtype = result if result.is_floating_point else torch.int64
        widened = {} if dtype is result else {"dtype": _C.DType(ir_dtype(dtype))}
        found = e.op(name, e.cast(x, dtype), dim=_dims(x, dim), keepdim=keepdim, **widened)
        return e.cast(found, result)
    return rule


for _name in ("sum", "mean", "prod"):
    register(f"aten::{_name}")(_sum_like(_name))


@register("aten::amax", "aten::max")
def _amax(e, node, x, dim=None, keepdim=False):
    return e.op("amax", x, dim=_dims(x, dim), keepdim=keepdim)


@register("aten::amin", "aten::min")
def _amin(e, node, x, dim=None, keepdim=False):
    return e.op("amin", x, dim=_dims(x, dim), keepdim=keepdim)


@register("aten::any", "aten::all")
def _any_all(e, node, x, dim=None, keepdim=False):
    name = node.target._schema.name.removeprefix("aten::")
    found = e.cast(x, torch.bool)
    if dim != []:  # unlike other reductions, these reduce nothing for []
        found = e.op(name, found, dim=_dims(x, dim), keepdim=keepdim)
    return e.cast(found, node.meta["val"].dtype)  # uint8 of uint8, else bool


def _variance(e, node, x, dim, correction, keepdim, **root):
    correction = 1 if correction is None else correction
    return e.op("var", x, dim=_dims(x, dim), correction=float(correction), keepdim=keepdim, **root)


@register("aten::var.correction")
def _var(e, node, x, dim=None, correction=None, keepdim=False):
    return _variance(e, node, x, dim, correction, keepdim)


@register("aten::std.correction")
def _std(e, node, x, dim=None, correction=None, keepdim=False):
    dtype = node.meta["val"].dtype
    x = e.cast(x, unrounded(dtype))
    return e.cast(_variance(e, node, x, dim, correction, keepdim, root=True), dtype)


@register("aten::var_mean.correction")
def _var_mean(e, node, x, dim=None, correction=None, keepdim=False):
    return [_variance(e, node, x, dim, correction, keepdim),
            e.op("mean", x, dim=_dims(x, dim), keepdim=keepdim)]


@register("aten::linalg_vector_norm")
def _vector_norm(e, node, x, ord=2, dim=None, keepdim=False, dtype=None):
    val, dims = node.meta["val"], _dims(x, dim)
    x = e.cast(x, unrounded(val.dtype))
    if ord != 0 and all(x.sizes[d] == 1 for d in (range(len(x.sizes)) if dims is None else dims)):
        found = e.reshape(e.op("abs", x), val.shape)  # its power may not be a number of the type
    else:
        found = _norm(e, x, ord, dim=dims, keepdim=keepdim)
    return e.cast(found, val.dtype)


def _norm(e, x, ord, **dims):
    if ord == 2:
        return e.op("sqrt", e.op("sum", square(e, x), **dims))
    if ord == 1:
        return e.op("sum", e.op("abs", x), **dims)
    if ord == 0:
        zero = e.constant(0, e.dtype_of(x))
        return e.op("sum", e.cast(e.op("ne", x, zero), e.dtype_of(x)), **dims)
    if ord in (float("inf"), float("-inf")):
        return e.op("amax" if ord > 0 else "amin", e.op("abs", x), **dims)
    power = e.op("pow", e.op("abs", x), e.constant(float(ord), e.dtype_of(x)))
    return e.op("pow", e.op("sum", power, **dims), e.constant(1.0 / ord, e.dtype_of(x)))


@register("aten::logsumexp")
def _logsumexp(e, node, x, dim, keepdim=False):
    return e.op("logsumexp", e.cast(x, node.meta["val"].dtype), dim=_dims(x, dim),
                keepdim=keepdim)


@register("aten::cumsum", "aten::cumprod")
def _cumulated(e, node, x, dim, dtype=None):
    dtype = node.meta["val"].dtype
    name = node.target._schema.name.removeprefix("aten::")
    # Small integers wrap around in the end as they do at each step.
    wide = dtype if dtype.is_floating_point else torch.int64
    found = e.op(name, e.cast(x, wide), dim=dim, dtype=_C.DType(ir_dtype(wide)))
    return e.cast(found, dtype)


@register("aten::mv")
def _mv(e, node, a, x):
    out = e.op("matmul", a, e.reshape(x, [x.sizes[0], 1]))
    return e.reshape(out, node.meta["val"].shape)


@register("aten::dot", "aten::vdot")
def _dot(e, node, x, y):
    n = x.sizes[0]
    return e.reshape(e.op("matmul", e.reshape(x, [1, n]), e.reshape(y, [n, 1])), [])
