"""Paths of derivatives that are zero.

Where the gradient of a product is constant, eager's gradient of it is zeros. For tensors without
data torch takes a formula that leaves the operand out, and there is no gradient: an optimizer would
neither decay the parameter nor move it by its momentum. Of one number that is 0, too, torch leaves
the operand out: a program that is the same for all values has zeros.
"""

import torch

from poptorch._base.torch_private import tracing as private
from poptorch._capture.library.saved_for_backward import keep, kept

aten = torch.ops.aten


class _WithPath(torch.autograd.Function):
    """The tensor itself; its gradient depends on it, by zeros."""

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
    """``x`` for an operation whose gradients all depend on ``x`` in eager mode: the second
    derivative of ``with_zero_path(x).prod()`` of one number is zero, not None."""
    is_plain = x.requires_grad and x.is_floating_point() and torch.is_grad_enabled()
    return _WithPath.apply(x) if is_plain and not private.is_transformed() else x


def _prod(capture, func, /, *args, **kwargs):
    args, kwargs = _with_operand_first(args, kwargs)
    return _of_operand(func, args, kwargs) if args[0].dim() > 0 else NotImplemented


def _cumprod(capture, func, /, *args, **kwargs):
    args, kwargs = _with_operand_first(args, kwargs)
    x, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim")
    # Of one number torch returns the gradient as it is.
    is_plain = isinstance(dim, int) and -x.dim() <= dim < x.dim() and x.shape[dim] > 1
    return _of_operand(func, args, kwargs) if is_plain else NotImplemented


def _with_operand_first(args, kwargs) -> tuple:
    """The arguments with the operand by its place: by name it is ``input``, of overloads ``self``.
    """
    others = {name: value for name, value in kwargs.items() if name not in ("input", "self")}
    return (*args, *(kwargs[name] for name in kwargs if name not in others)), others


def _of_operand(func, args, kwargs):
    if kwargs.get("out") is not None:
        return NotImplemented  # torch has the words for it
    known = with_zero_path(args[0])
    return func(known, *args[1:], **kwargs) if known is not args[0] else NotImplemented


HANDLERS = {
    **dict.fromkeys((torch.prod, torch.Tensor.prod, aten.prod.default, aten.prod.dim_int), _prod),
    **dict.fromkeys((torch.cumprod, torch.Tensor.cumprod, aten.cumprod.default), _cumprod),
}
