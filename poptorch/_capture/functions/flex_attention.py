"""Attention with functions of the user's for scores and masks: ``flex_attention`` of torch."""

import math

import torch

from poptorch._capture.decompose.table import computed_in
from poptorch._capture.functions.attention import repeat_heads
from poptorch._capture.functions.mixed_precision import autocast


def flex_attention(capture, func, query, key, value, score_mod, block_mask, scale, kernel_options,
                   score_mod_other_buffers=(), mask_mod_other_buffers=()):
    """Handler of the operator on functions that ``flex_attention`` calls.

    The blocks of the mask only say what may be left out; its ``mask_mod`` function decides.
    """
    query, key, value = autocast(query, key, value)
    key, value = (repeat_heads(t.expand(len(query), -1, -1, -1), query.shape[1])
                  for t in (key, value))
    wide = computed_in(query.dtype)
    with capture.functions:
        scores = torch.matmul(query.to(wide), key.to(wide).transpose(-2, -1)) * scale
        places = [torch.arange(size) for size in scores.shape]
        kept = _at_each_place(block_mask[-1], (), mask_mod_other_buffers)(
            *places, *mask_mod_other_buffers)
        scores = _at_each_place(score_mod, (0,), score_mod_other_buffers)(
            scores, *places, *score_mod_other_buffers)
    scores = torch.where(kept, scores, torch.tensor(-torch.inf, dtype=wide))
    most = scores.amax(-1)
    reads = (scores != -torch.inf).any(-1, keepdim=True)  # a row that sees nothing gives zeros
    weights = torch.softmax(scores.masked_fill(~reads, 0.0), dim=-1) * reads
    sums = torch.logsumexp(scores.masked_fill(~reads, 0.0), dim=-1)
    sums = sums.masked_fill(~reads.squeeze(-1), -torch.inf)
    out = torch.matmul(weights.to(query.dtype), value.to(query.dtype))
    # The caller multiplies by the logarithm of 2, as the kernels of torch count in powers of 2.
    out = _laid_out_as(query, out)
    return out, sums / math.log(2), most / math.log(2)


def _at_each_place(function, first: tuple, others: tuple):
    """``function``, which takes numbers, on whole scores and the vectors of the places in their
    four dimensions."""
    for dim in (3, 2, 1, 0):
        places = [0 if place == dim else None for place in range(4)]
        function = torch.vmap(function, in_dims=(*first, *places, *(None for _ in others)))
    return function


def _laid_out_as(query, out):
    """A copy with the dimensions in memory in the order of those of ``query``, the last one
    innermost."""
    order = [*sorted(range(3), key=query.stride, reverse=True), 3]
    inverse = [order.index(dim) for dim in range(4)]
    return out.permute(order).clone(memory_format=torch.contiguous_format).permute(inverse)


HIGHER_ORDER = {"flex_attention": flex_attention}
