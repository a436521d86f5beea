"""CTC loss by one operation.

torch's own operation has results whose shapes depend on the lengths of the targets.
"""

import torch
import torch.nn.functional as F

from poptorch._base.torch_private import tracing as private
from poptorch._capture.decompose.table import computed_in
from poptorch._capture.functions.mixed_precision import widened
from poptorch._capture.graph.constant_values import known_value
from poptorch._capture.library import ctc  # noqa: F401  (declares the operations)
from poptorch._capture.library.layers import ops


def _ctc_loss(capture, func, log_probs, targets, input_lengths, target_lengths, blank=0,
              reduction="mean", zero_infinity=False):
    if not log_probs.is_floating_point():
        return NotImplemented  # torch has the words for it
    log_probs = widened(log_probs)
    is_batched = log_probs.dim() == 3
    if not is_batched:
        log_probs, targets = log_probs.unsqueeze(1), targets.unsqueeze(0)
    if targets.dim() == 1:
        targets = _padded(capture, targets, target_lengths)
    lengths = [torch.as_tensor(n, dtype=torch.int64).reshape(-1)
               for n in (input_lengths, target_lengths)]
    wide = log_probs.to(computed_in(log_probs.dtype))
    losses, _ = ops.ctc_loss(wide, targets.long(), *lengths, blank, zero_infinity)
    if not is_batched and reduction == "none":
        losses = losses.squeeze(0)
    return _reduced(losses, lengths[1], reduction).to(log_probs.dtype)


def _padded(capture, targets, lengths):
    """Targets that follow each other without padding, as [batch, length]. Where the lengths are
    known only when the program runs, one sequence may have all of them."""
    if isinstance(lengths, torch.Tensor):
        known = known_value(capture.recorder, lengths)
        if known is None:
            return _padded_to_all(capture, targets, lengths.reshape(-1).long())
        with private.without_modes():
            lengths = known.tolist()
    return torch.nn.utils.rnn.pad_sequence(targets.split(list(lengths)), batch_first=True)


def _padded_to_all(capture, targets, lengths):
    size, ends = targets.shape[0], lengths.cumsum(0)
    capture.recorder.checks.require(
        lengths.sum() == size, f"[ctc_loss] the sum of target_lengths is not {size}, the number of "
        f"targets, which have one dimension. Pass all targets, and no others.")
    places = (ends - lengths).unsqueeze(1) + torch.arange(size)
    return targets[places.clamp(max=size - 1)]


def _reduced(losses, target_lengths, reduction: str):
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return (losses / target_lengths.clamp(min=1)).mean()


HANDLERS = {F.ctc_loss: _ctc_loss}
