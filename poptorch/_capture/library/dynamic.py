"""The operations of namespace ``poptorch`` for parts of a tensor whose start a tensor names."""

from poptorch._capture.library.layers import define, ops
from poptorch._capture.library.saved_for_backward import keep, kept


def _slice(self, dim, start, size, step):
    sizes = list(self.shape)
    sizes[dim] = (size - 1) // step + 1
    return self.new_empty(sizes)


def _keep_slice(ctx, inputs, output):
    x, ctx.dim, start, ctx.size, ctx.step = inputs
    ctx.shape = x.shape
    keep(ctx, start)


def _slice_gradient(ctx, gradient):
    start, = kept(ctx)
    zeros = gradient.new_zeros(ctx.shape)
    return ops.dynamic_update(zeros, gradient, ctx.dim, start, ctx.size, ctx.step),


def _keep_update(ctx, inputs, output):
    _, src, ctx.dim, start, ctx.size, ctx.step = inputs
    ctx.shape = src.shape
    keep(ctx, start)


def _update_gradient(ctx, gradient):
    start, = kept(ctx)
    of_self = of_src = None
    if ctx.needs_input_grad[0]:
        zeros = gradient.new_zeros(ctx.shape)
        of_self = ops.dynamic_update(gradient, zeros, ctx.dim, start, ctx.size, ctx.step)
    if ctx.needs_input_grad[1]:
        of_src = ops.dynamic_slice(gradient, ctx.dim, start, ctx.size, ctx.step)
    return of_self, of_src


define("dynamic_slice(Tensor self, int dim, Tensor start, int size, int step) -> Tensor",
       _slice, _keep_slice, _slice_gradient)
define("dynamic_update(Tensor self, Tensor src, int dim, Tensor start, int size, int step) "
       "-> Tensor",
       lambda self, src, dim, start, size, step: self.new_empty(self.shape),
       _keep_update, _update_gradient)
