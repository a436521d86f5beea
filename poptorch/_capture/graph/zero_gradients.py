"""Paths of derivatives that are zero.

Torch computes the gradient of a product from the value of its operand, whatever the operand: so the
gradient of a gradient is zeros where it is constant. Of tensors without data it takes a formula
that leaves the operand out, and there is no gradient at all. An optimizer treats the two
differently: a parameter without a gradient is neither decayed nor moved by its momentum. If the
operand is one number and 0, torch leaves it out as well: there, its value decides, and a program
that is the same for all values has zeros.
"""

import torch

from poptorch._base.torch_private import tracing as private
from poptorch._capture.library.saved_for_backward import keep, kept

aten = torch.ops.aten


class _WithPath(torch.autograd.Function):
    """The tensor itself, of which the gradient depends on it, by zeros."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        keep(ctx, x)
        return aten.alias.default(x)

    @staticmethod
    def backward(ctx, gradient):
        if gradient is None or not torch.is_grad_enabled():
            return gradient
        x, = kept(ctx)
        # A choice, as 0 times an infinite number is none.
        return torch.where(torch.zeros((), dtype=torch.bool), _WithPath.apply(x), gradient)


def with_zero_path(x: torch.Tensor) -> torch.Tensor:
    """``x`` as operand of an operation of which each gradient depends on it in eager mode.

    Example:
        The second derivative of the product of one number is zero, in place of none:
        ``with_zero_path(x).prod()``.
    """
    is_plain = x.requires_grad and x.is_floating_point() and torch.is_grad_enabled()
    return _WithPath.apply(x) if is_plain and not private.is_transformed() else x


def _prod(capture, func, /, *args, **kwargs):
    def call(input, dim=None, **others):
        return _of_operand(func, input, args, kwargs) if input.dim() > 0 else NotImplemented

    args, kwargs = _with_operand_first(args, kwargs)
    return call(*args[:2], **kwargs)


def _cumprod(capture, func, /, *args, **kwargs):
    def call(input, dim, **others):
        # Of one number torch returns the gradient as it is.
        is_plain = isinstance(dim, int) and -input.dim() <= dim < input.dim()
        return _of_operand(func, input, args, kwargs) if is_plain and input.shape[dim] > 1 \
            else NotImplemented

    args, kwargs = _with_operand_first(args, kwargs)
    return call(*args, **kwargs)


def _with_operand_first(args, kwargs) -> tuple:
    """The arguments with the operand by its place: by name it is ``input``, of overloads ``self``.
    """
    others = {name: value for name, value in kwargs.items() if name not in ("input", "self")}
    return (*args, *(kwargs[name] for name in kwargs if name not in others)), others


def _of_operand(func, x, args, kwargs):
    if kwargs.get("out") is not None:
        return NotImplemented  # torch has the words for it
    known = with_zero_path(x)
    return func(known, *args[1:], **kwargs) if known is not x else NotImplemented


HANDLERS = {
    **dict.fromkeys((torch.prod, torch.Tensor.prod, aten.prod.default, aten.prod.dim_int), _prod),
    **dict.fromkeys((torch.cumprod, torch.Tensor.cumprod, aten.cumprod.default), _cumprod),
}
