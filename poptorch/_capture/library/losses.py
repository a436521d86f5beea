"""Cross entropy as one operation, for graphs that have its gradient in another program.

Where one program has both, the compiler makes them of what PyTorch calls (``fuse_cross_entropy``).
"""

import torch

from poptorch._capture.library.layers import define, ops, statistics_dtype
from poptorch._capture.library.saved_for_backward import keep, kept


def _cross_entropy(scores, target, weight, reduction, ignore_index):
    loss = scores.new_empty(target.shape if reduction == 0 else ())
    sums = scores.new_empty(len(scores), 2, dtype=statistics_dtype(scores))
    return loss, scores.new_empty(()), sums


def _keep_cross_entropy(ctx, inputs, output):
    *operands, ctx.reduction, ctx.ignore_index = inputs
    ctx.mark_non_differentiable(*output[1:])
    keep(ctx, *operands, *output[1:])


def _cross_entropy_gradient(ctx, gradient, *_):
    return ops.cross_entropy_backward(gradient, *kept(ctx), ctx.reduction, ctx.ignore_index),


_SETTINGS = "int reduction, int ignore_index"
define(f"cross_entropy(Tensor scores, Tensor target, Tensor? weight, {_SETTINGS}) "
       "-> (Tensor, Tensor, Tensor)",
       _cross_entropy, _keep_cross_entropy, _cross_entropy_gradient)
define("cross_entropy_backward(Tensor grad, Tensor scores, Tensor target, Tensor? weight, "
       f"Tensor total_weight, Tensor sums, {_SETTINGS}) -> Tensor",
       lambda grad, scores, *others: torch.empty_like(scores))
