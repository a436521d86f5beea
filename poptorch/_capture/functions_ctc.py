"""CTC loss by its recursion over time: a few nodes for each step.

torch's own operation has results whose shapes depend on the lengths of the targets.
"""

import torch
import torch.nn.functional as F

from poptorch._capture import torch_private as private
from poptorch._capture.kept import keep, kept

# Stands for log(0): its differences and gradients are numbers.
_NOTHING = -1e30


def _ctc_loss(capture, func, args, kwargs):
    def call(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean",
             zero_infinity=False):
        if log_probs.dim() == 2:
            log_probs, targets = log_probs.unsqueeze(1), targets.unsqueeze(0)
        if targets.dim() == 1:
            targets = _padded(capture, targets, target_lengths)
        lengths = [torch.as_tensor(n, dtype=torch.int64).reshape(-1)
                   for n in (input_lengths, target_lengths)]
        losses = _losses(log_probs, targets, *lengths, blank)
        impossible = losses > -_NOTHING / 2
        losses = losses.masked_fill(impossible, 0.0 if zero_infinity else torch.inf)
        unknown = losses.isnan() | (losses == -torch.inf)  # of numbers that are no probabilities
        losses = losses.masked_fill(unknown, torch.nan)
        inside = torch.arange(len(log_probs)).unsqueeze(1) < lengths[0]
        losses = _Normalized.apply(losses, log_probs, impossible, unknown, inside, zero_infinity)
        return _reduced(losses, lengths[1], reduction)

    out = call(*args, **kwargs)
    capture.losses.mark_standard(out, func, args, kwargs)
    return out


class _Normalized(torch.autograd.Function):
    """The losses, with the gradient that torch gives.

    Torch takes for granted that the probabilities of a step add up to one: its gradient of a
    log-probability is by ``exp(log_prob)`` larger than what the loss alone says. Behind a
    log_softmax that makes no difference; of any other numbers it is what the user's program sees.
    """

    @staticmethod
    def forward(ctx, losses, log_probs, impossible, unknown, inside, zero_infinity):
        keep(ctx, log_probs, impossible, unknown, inside)
        ctx.of_impossible = 0.0 if zero_infinity else torch.nan
        return losses.clone()

    @staticmethod
    def backward(ctx, gradient):
        log_probs, impossible, unknown, inside = kept(ctx)
        added = log_probs.exp().masked_fill(impossible.unsqueeze(1), ctx.of_impossible)
        added = added.masked_fill(unknown.unsqueeze(1), torch.nan)
        added = (added * gradient.unsqueeze(1)).masked_fill(~inside.unsqueeze(2), 0.0)
        return gradient, added, None, None, None, None


def _padded(capture, targets, lengths):
    """Targets that follow each other without padding, as [batch, length]."""
    if isinstance(lengths, private.FakeTensor):
        raise capture.recorder.error(
            "[ctc_loss] targets has 1 dimension, but where the lengths differ from call to call "
            "it must be padded: pass it as [batch, length].")
    if isinstance(lengths, torch.Tensor):
        with private.without_modes():
            lengths = lengths.tolist()
    return torch.nn.utils.rnn.pad_sequence(targets.split(list(lengths)), batch_first=True)


def _losses(log_probs, targets, input_lengths, target_lengths, blank: int):
    """Negative log-likelihood of each sequence: [batch]."""
    time, batch = log_probs.shape[:2]
    states = 2 * targets.shape[1] + 1
    labels = torch.full((batch, states), blank, dtype=torch.int64)
    labels[:, 1::2] = targets
    scores = log_probs.gather(2, labels.expand(time, batch, states))
    # A label may follow the one before the last if a blank stands between and they differ.
    may_skip = torch.zeros(batch, states, dtype=torch.bool)
    may_skip[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    reachable = torch.arange(states) < torch.where(target_lengths > 0, 2, 1).unsqueeze(1)
    alpha = torch.where(reachable, scores[0], _NOTHING)
    for t in range(1, time):
        paths = torch.stack([alpha, _shifted(alpha, 1),
                             torch.where(may_skip, _shifted(alpha, 2), _NOTHING)])
        after = torch.logsumexp(paths, 0) + scores[t]
        alpha = torch.where((t < input_lengths).unsqueeze(1), after, alpha)
    last = (2 * target_lengths).unsqueeze(1)
    ends = torch.cat([last, (last - 1).clamp(min=0)], 1)
    ends = alpha.gather(1, ends)
    one_end = (target_lengths == 0).unsqueeze(1) & (torch.arange(2) == 1)
    return -torch.logsumexp(ends.masked_fill(one_end, _NOTHING), 1)


def _shifted(alpha, count: int):
    return F.pad(alpha[:, :-count], (count, 0), value=_NOTHING)


def _reduced(losses, target_lengths, reduction: str):
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return (losses / target_lengths.clamp(min=1)).mean()


HANDLERS = {F.ctc_loss: _ctc_loss}
