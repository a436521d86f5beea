"""Functions in other words: torch's own look at values first, or decompose less well."""

import math

import torch
import torch.nn.functional as F

from poptorch._capture import library_counts, library_embedding  # noqa: F401  (declare operations)
from poptorch._capture.library import ops


def gaussian_nll(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """``F.gaussian_nll_loss`` without its test that no variance is negative."""
    if isinstance(var, (int, float)):
        var = torch.full_like(input, var)
    if var.shape != input.shape and var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    # The gradient of a variance passes where it is clamped, as in torch.
    var = var + (var.clamp(min=eps) - var).detach()
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _bincount(capture, func, args, kwargs):
    def call(input, weights=None, minlength=0):
        if minlength < 1:
            raise capture.recorder.error(
                f"[bincount] minlength is {minlength}, but the length of the result must be known "
                f"when the model is compiled. Pass minlength: one more than the largest number.")
        if input.dim() != 1 or input.is_floating_point() or input.dtype is torch.bool \
                or weights is not None and weights.shape != input.shape:
            return NotImplemented  # torch has the words for it
        if weights is not None:
            weights = weights.detach()
            weights = weights if weights.dtype is torch.float32 else weights.double()
        return ops.bincount(input.long(), weights, minlength)

    return call(*args, **kwargs)


def _embedding_bag(capture, func, args, kwargs):
    def call(input, weight, offsets=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
             mode="mean", sparse=False, per_sample_weights=None, include_last_offset=False,
             padding_idx=None):
        if input.dim() != (2 if offsets is None else 1) or max_norm is not None \
                or scale_grad_by_freq:
            return NotImplemented
        padding = -1 if padding_idx is None else padding_idx % len(weight)
        return ops.embedding_bag(weight, input, offsets, per_sample_weights, mode, padding,
                                 include_last_offset)

    return call(*args, **kwargs)


def multi_margin(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None,
                 reduction="mean"):
    """``F.multi_margin_loss`` by elementwise operations."""
    if p not in (1, 2):
        raise ValueError(f"p is {p}, but 1 or 2 is needed")
    if input.dim() < 2:
        input, target = input.reshape(1, -1), target.reshape(1)
        reduction = "sum" if reduction == "none" else reduction
    target = target.unsqueeze(1)
    cost = F.relu(margin - input.gather(1, target) + input)
    cost = cost if p == 1 else cost * cost
    if weight is not None:
        cost = cost * weight[target]
    cost = cost.masked_fill(torch.arange(input.shape[1]) == target, 0.0)
    loss = cost.sum(1) / input.shape[1]
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _loss(function):
    def handler(capture, func, args, kwargs):
        out = function(*args, **kwargs)
        capture.losses.mark_standard(out)
        return out

    return handler


def _bilinear(capture, func, args, kwargs):
    def call(input1, input2, weight, bias=None):
        features, first, second = weight.shape
        if input1.shape[-1] != first or input2.shape[-1] != second:
            return NotImplemented
        table = weight.transpose(0, 1).reshape(first, features * second)
        rows = (input1 @ table).unflatten(-1, (features, second))
        out = (rows @ input2.unsqueeze(-1)).squeeze(-1)
        return out if bias is None else out + bias

    return call(*args, **kwargs)


def _unfold(capture, func, args, kwargs):
    def call(x, dimension, size, step):
        if size != step or x.dim() == 0 or x.shape[dimension] < size:
            return NotImplemented
        # Windows that do not overlap are plain views.
        dim = dimension % x.dim()
        count = x.shape[dim] // size
        return x.narrow(dim, 0, count * size).unflatten(dim, (count, size)).movedim(dim + 1, -1)

    return call(*args, **kwargs)


HANDLERS = {
    F.gaussian_nll_loss: _loss(gaussian_nll),
    F.multi_margin_loss: _loss(multi_margin),
    F.bilinear: _bilinear,
    F.embedding_bag: _embedding_bag,
    torch.Tensor.bincount: _bincount,
    torch.Tensor.unfold: _unfold,
    torch.bincount: _bincount,
}
