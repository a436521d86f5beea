"""Rules for element-wise ops: promotion of operands, scalars, and composed ops."""

import math

import torch

from poptorch import _C
from poptorch._base.types import ir_dtype, narrowed, unrounded
from poptorch._translate.rules.registry import register

_ARITHMETIC = ("minimum", "maximum", "fmod", "remainder", "atan2", "bitwise_and",
               "bitwise_or", "bitwise_xor")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_LOGICAL = ("logical_and", "logical_or", "logical_xor")
_UNARY = ("neg", "abs", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt",
          "rsqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
          "asinh", "acosh", "atanh", "tanh", "sigmoid", "erf", "erfc", "relu", "floor", "ceil",
          "round", "trunc", "frac")


def operand(e, value, dtype: torch.dtype):
    """A tensor or Python number as an operand of ``dtype``."""
    return e.cast(value, dtype) if isinstance(value, _C.Value) else e.constant(value, dtype)


def _term(e, value, dtype: torch.dtype):
    """An operand of arithmetic: an integer outside of the range of ``dtype`` wraps around."""
    if isinstance(value, int) and not dtype.is_floating_point:
        value = torch.tensor(value).to(dtype)
    return operand(e, value, dtype)


def _arithmetic(name):
    def rule(e, node, x, y):
        dtype = node.meta["val"].dtype
        return e.op(name, _term(e, x, dtype), _term(e, y, dtype))
    return rule


def _comparison(name):
    def rule(e, node, x, y):
        metas = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in node.args[:2]]
        dtype = torch.result_type(*metas)
        if dtype.is_floating_point:  # a number beyond its range compares as infinity does
            dtype = narrowed(dtype)
        return e.op(name, _term(e, x, dtype), _term(e, y, dtype))
    return rule


def _logical(name):
    def rule(e, node, x, y):
        return e.op(name, operand(e, x, torch.bool), operand(e, y, torch.bool))
    return rule


def _unary(name):
    def rule(e, node, x):
        return e.op(name, e.cast(x, node.meta["val"].dtype))
    return rule


for _name in _ARITHMETIC:
    register(f"aten::{_name}")(_arithmetic(_name))
for _name in _COMPARISONS:
    register(f"aten::{_name}")(_comparison(_name))
for _name in _LOGICAL:
    register(f"aten::{_name}")(_logical(_name))
for _name in _UNARY:
    register(f"aten::{_name}")(_unary(_name))


def _scaled(e, node, name: str, x, y, **attrs):
    """A product or quotient. A number next to a 16-bit tensor keeps its precision."""
    dtype = wide = node.meta["val"].dtype
    if unrounded(dtype) is not dtype and not (_fits(x, dtype) and _fits(y, dtype)):
        wide = unrounded(dtype)
    return e.cast(e.op(name, _term(e, x, wide), _term(e, y, wide), **attrs), dtype)


def _fits(value, dtype: torch.dtype) -> bool:
    """Whether a number is one of ``dtype``; of a tensor's numbers, whether eager rounds them.

    It does not where there is one number alone, in any number of dimensions.
    """
    if isinstance(value, _C.Value):
        return math.prod(value.sizes) != 1 or value.dtype == ir_dtype(dtype)
    return value != value or torch.tensor(float(value)).to(dtype).item() == value


@register("aten::mul")
def _mul(e, node, x, y):
    return _scaled(e, node, "mul", x, y)


@register("aten::add", "aten::sub")
def _add_sub(e, node, x, y, alpha=1):
    dtype = node.meta["val"].dtype
    name = node.target._schema.name.removeprefix("aten::")
    x, y = _term(e, x, dtype), _term(e, y, dtype)
    if dtype is torch.bool:
        return e.op("logical_or", x, y) if alpha else e.expand(x, node.meta["val"].shape)
    return e.op(name, x, y, alpha=_kept(alpha, dtype))


@register("aten::rsub")
def _rsub(e, node, x, y, alpha=1):
    dtype = node.meta["val"].dtype
    return e.op("sub", _term(e, y, dtype), _term(e, x, dtype), alpha=_kept(alpha, dtype))


@register("aten::div")
def _div(e, node, x, y, rounding_mode=None):
    dtype = node.meta["val"].dtype
    if rounding_mode == "trunc" and unrounded(dtype) is not dtype and \
            isinstance(y, _C.Value) and math.prod(y.sizes) != 1:
        # Eager's quotient of 16-bit tensors is rounded before its fraction is cut off.
        return e.op("trunc", e.op("div", _term(e, x, dtype), _term(e, y, dtype)))
    return _scaled(e, node, "div", x, y, rounding_mode=rounding_mode)


@register("aten::floor_divide")
def _floor_divide(e, node, x, y):
    return _div(e, node, x, y, rounding_mode="floor")


@register("aten::pow")
def _pow(e, node, x, y):
    dtype = node.meta["val"].dtype
    if not isinstance(y, _C.Value):
        if y == 1:
            return e.cast(x, dtype)
        if y == 2:
            return square(e, e.cast(x, dtype))
        if abs(y) == 0.5 and dtype is not torch.float16:  # as PyTorch: NaN of -inf
            return e.op("sqrt" if y > 0 else "rsqrt", e.cast(x, dtype))
    return e.op("pow", operand(e, x, dtype), operand(e, y, dtype))


def square(e, x):
    """``x * x``."""
    return e.op("mul", x, x)


@register("aten::logical_not")
def _logical_not(e, node, x):
    return e.op("logical_not", e.cast(x, torch.bool))


@register("aten::where")
def _where(e, node, condition, x, y):
    dtype = node.meta["val"].dtype
    return e.op("where", e.cast(condition, torch.bool), operand(e, x, dtype),
                operand(e, y, dtype))


@register("aten::masked_fill")
def _masked_fill(e, node, x, mask, value):
    dtype = node.meta["val"].dtype
    return e.op("masked_fill", e.cast(x, dtype), mask, operand(e, value, dtype))


def _kept(value, dtype: torch.dtype) -> float:
    """A number that an op compares or fills with: in whole types, what a tensor holds for it."""
    return float(value if dtype.is_floating_point else torch.tensor(value, dtype=dtype).item())


@register("aten::threshold")
def _threshold(e, node, x, threshold, value):
    dtype = node.meta["val"].dtype
    return e.op("threshold", e.cast(x, dtype), threshold=_kept(threshold, dtype),
                value=_kept(value, dtype))


@register("aten::clamp")
def _clamp(e, node, x, min=None, max=None):
    dtype = node.meta["val"].dtype
    x = e.cast(x, dtype)
    if isinstance(min, _C.Value) or isinstance(max, _C.Value):
        for name, bound in (("maximum", min), ("minimum", max)):
            if bound is not None:
                x = e.op(name, x, operand(e, bound, dtype))
        return x
    # Since torch 2.15 a bound that no number of the type reaches has no effect; before, it wraps.
    if not dtype.is_floating_point and torch.__version__ >= "2.15":
        info = torch.iinfo(dtype)
        min = None if min is not None and min < info.min else min
        max = None if max is not None and max > info.max else max
        if min is None and max is None:
            return x
    limits = {name: None if v is None else _kept(v, dtype)
              for name, v in (("min", min), ("max", max))}
    return e.op("clamp", x, **limits)


@register("aten::clamp_min")
def _clamp_min(e, node, x, min):
    return _clamp(e, node, x, min=min)


@register("aten::clamp_max")
def _clamp_max(e, node, x, max):
    return _clamp(e, node, x, max=max)


@register("aten::round.decimals")
def _round_decimals(e, node, x, decimals):
    dtype = node.meta["val"].dtype
    wide = unrounded(dtype)
    power = e.constant(float(f"1e{abs(decimals)}"), wide)  # infinity where that is too much
    before, after = ("mul", "div") if decimals >= 0 else ("div", "mul")
    rounded = e.op("round", e.op(before, e.cast(x, wide), power))
    return e.cast(e.op(after, rounded, power), dtype)


@register("aten::_to_copy", "prims::convert_element_type")
def _to_copy(e, node, x, *args, **kwargs):
    dtype = node.meta["val"].dtype
    if isinstance(x, (bool, int, float)):  # as torch's decompositions call it
        return e.constant(x, dtype)
    return e.cast(x, dtype)


@register("aten::clone", "aten::lift_fresh", "aten::lift_fresh_copy", "aten::_conj")
def _same(e, node, x, *args, **kwargs):
    return x


@register("aten::_neg_view")
def _neg_view(e, node, x):
    return e.op("neg", x)


@register("aten::copy")
def _copy(e, node, x, source, non_blocking=False):
    return e.expand(e.cast(source, node.meta["val"].dtype), x.sizes)


@register("aten::sign")
def _sign(e, node, x):
    return x if x.dtype == "bool" else e.op("sign", x)


@register("aten::isnan", "aten::isinf")
def _is_special(e, node, x):
    if not e.dtype_of(x).is_floating_point:
        return e.full(x.sizes, False, torch.bool)
    return e.op(node.target._schema.name.removeprefix("aten::"), x)
