"""The operations of namespace ``poptorch`` for the CTC loss.

``log_probs`` is ``[time, batch, classes]``, ``targets`` ``[batch, labels]``; ``alpha`` is what the
forward pass keeps for the gradient.
"""

from poptorch._capture.library import double_backward
from poptorch._capture.library.layers import define, ops
from poptorch._capture.library.saved_for_backward import keep, kept

_LENGTHS = "Tensor targets, Tensor input_lengths, Tensor target_lengths"


def _ctc_loss(log_probs, targets, *others):
    time, batch = log_probs.shape[:2]
    states = 2 * targets.shape[1] + 1
    return log_probs.new_empty(batch), log_probs.new_empty(batch, time, states)


def _keep_ctc(ctx, inputs, output):
    ctx.mark_non_differentiable(output[1])
    *tensors, ctx.blank, ctx.zero_infinity = inputs
    keep(ctx, *tensors, output[1])


def _ctc_gradient(ctx, gradient, _):
    return ops.ctc_loss_backward(gradient, *kept(ctx), ctx.blank, ctx.zero_infinity),


define(f"ctc_loss(Tensor log_probs, {_LENGTHS}, int blank, bool zero_infinity) -> (Tensor, Tensor)",
       _ctc_loss, _keep_ctc, _ctc_gradient)
define(f"ctc_loss_backward(Tensor grad_output, Tensor log_probs, {_LENGTHS}, Tensor alpha, "
       "int blank, bool zero_infinity) -> Tensor",
       lambda grad_output, log_probs, *others: log_probs.new_empty(log_probs.shape),
       backward=double_backward.refused("ctc_loss"))
