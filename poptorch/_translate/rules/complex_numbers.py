"""Rules for operations on complex numbers. They get :class:`Complex` operands and return one, or a
value for a real result, or NotImplemented where PyTorch's own operator is called."""

import math
from collections.abc import Callable

import torch

from poptorch._base.types import real_dtype
from poptorch._translate.complex_numbers import Complex
from poptorch._translate.rules.elementwise import operand

COMPLEX_RULES: dict[str, Callable] = {}


def _register(*names: str) -> Callable:
    def enter(function):
        COMPLEX_RULES.update({f"aten::{name}": function for name in names})
        return function
    return enter


def _parts(e, value, dtype) -> tuple:
    """Real and imaginary part of an operand, None for the latter of a real one."""
    if isinstance(value, Complex):
        return tuple(e.cast(part, dtype) for part in value.parts)
    if isinstance(value, complex):
        return tuple(e.constant(part, dtype) for part in (value.real, value.imag))
    return operand(e, value, dtype), None


def _of(node):
    return real_dtype(node.meta["val"].dtype)


@_register("view_as_real")
def _view_as_real(e, node, x):
    return x.pairs


@_register("view_as_complex")
def _view_as_complex(e, node, x):
    return Complex(e, pairs=x)


@_register("complex")
def _complex(e, node, real, imag):
    sizes = node.meta["val"].shape
    return Complex(e, parts=(e.expand(real, sizes), e.expand(imag, sizes)))


@_register("polar")
def _polar(e, node, abs, angle):
    return Complex(e, parts=(e.op("mul", abs, e.op("cos", angle)),
                             e.op("mul", abs, e.op("sin", angle))))


@_register("_conj", "conj_physical", "_conj_physical")
def _conj(e, node, x):
    real, imag = _parts(e, x, _of(node))
    return Complex(e, parts=(real, e.op("neg", imag)))


@_register("ones", "ones_like", "new_ones")
def _ones(e, node, *args, **kwargs):
    sizes, dtype = node.meta["val"].shape, _of(node)
    return Complex(e, parts=(e.full(sizes, 1, dtype), e.full(sizes, 0, dtype)))


@_register("mul")
def _mul(e, node, x, y):
    (a, b), (c, d) = (_parts(e, value, _of(node)) for value in (x, y))
    real, imag = e.op("mul", a, c), None
    if b is not None and d is not None:
        real = e.op("sub", real, e.op("mul", b, d), alpha=1.0)
    for left, right in ((a, d), (b, c)):
        if left is not None and right is not None:
            term = e.op("mul", left, right)
            imag = term if imag is None else e.op("add", imag, term, alpha=1.0)
    return Complex(e, parts=(real, imag))


@_register("div")
def _div(e, node, x, y, rounding_mode=None):
    a, b = _parts(e, x, _of(node))
    c, d = _parts(e, y, _of(node))
    if d is not None:
        return NotImplemented  # PyTorch's kernel avoids overflow of the divisor's square
    return Complex(e, parts=(e.op("div", a, c), e.op("div", b, c)))


@_register("abs")
def _abs(e, node, x):
    """The root of the sum of squares, which are of numbers up to 1 so that none overflows."""
    dtype = node.meta["val"].dtype
    first, second = (e.op("abs", part) for part in x.parts)
    large, small = e.op("maximum", first, second), e.op("minimum", first, second)
    one, zero = e.constant(1.0, dtype), e.constant(0.0, dtype)
    is_plain = e.op("logical_and", e.op("gt", large, zero),
                    e.op("lt", large, e.constant(math.inf, dtype)))
    ratio = e.op("div", e.op("where", is_plain, small, zero), e.op("where", is_plain, large, one))
    squares = e.op("add", e.op("mul", ratio, ratio), one, alpha=1.0)
    return e.op("mul", large, e.op("sqrt", squares))


@_register("angle")
def _angle(e, node, x):
    real, imag = x.parts
    return e.op("atan2", imag, real)


@_register("_to_copy")
def _to_copy(e, node, x, **kwargs):
    """To real numbers; others are linear."""
    dtype = node.meta["val"].dtype
    if dtype.is_complex or dtype is torch.bool:
        return NotImplemented
    return e.cast(x.parts[0], dtype)
