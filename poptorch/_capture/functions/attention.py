"""Scaled dot-product attention as one operation."""

import math
from functools import partial

import torch
import torch.nn.functional as F

from poptorch._base.torch_private import tracing as private
from poptorch._capture.functions.mixed_precision import autocast
from poptorch._capture.library.layers import attended, ops


def _attention(capture, func, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False,
               scale=None, enable_gqa=False):
    if not _well_formed(query, key, value, attn_mask, is_causal, enable_gqa):
        return NotImplemented  # torch has the words for it
    query, key, value = autocast(query, key, value)
    # Which ranks have a kernel depends on the release: since torch 2.15 also three dimensions.
    takes_mask = attn_mask is None or attn_mask.dim() > query.dim() - 3
    like_query = takes_mask and private.has_fused_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if enable_gqa:
        key, value = (repeat_heads(t, query.shape[-3]) for t in (key, value))
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1])
    attention = _by_steps if attn_mask is not None and attn_mask.requires_grad else partial(
        _whole, like_query=like_query)
    return attention(capture, query, key, value, attn_mask, dropout_p, is_causal, scale)


def _well_formed(q, k, v, mask, is_causal: bool, enable_gqa: bool) -> bool:
    if min(q.dim(), k.dim(), v.dim()) < 2 or (is_causal and mask is not None):
        return False
    if mask is not None and mask.dim() > max(q.dim(), k.dim(), v.dim()):
        return False
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2] or q.shape[-1] == 0:
        return False
    if enable_gqa and (min(q.dim(), k.dim(), v.dim()) < 3 or q.shape[-3] % k.shape[-3]
                       or q.shape[-3] % v.shape[-3]):
        return False
    return q.dtype == k.dtype == v.dtype and q.dtype.is_floating_point


def repeat_heads(t: torch.Tensor, heads: int) -> torch.Tensor:
    """Each head of grouped keys or values for all the query heads that share it."""
    count = heads // t.shape[-3]
    if count == 1:
        return t
    expanded = t.unsqueeze(-3).expand(*t.shape[:-2], count, *t.shape[-2:])
    return expanded.flatten(-4, -3)


def _whole(capture, q, k, v, mask, dropout_p, is_causal, scale, like_query: bool):
    """One node, on ``[batch, heads, length, size]``; it has eager's strides."""
    leading = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    batch, heads = (*leading, 1) if len(leading) == 1 else (1, 1, *leading)[-2:]
    if len(leading) > 2:
        batch = math.prod(leading[:-1])
    q4, k4, v4 = (_in_four(t, leading, batch, heads) for t in (q, k, v))
    if mask is not None:
        mask = _mask_in_four(mask, leading, batch, heads)
        if mask.dtype is not torch.bool:
            mask = mask.to(q.dtype)
    salt, rng = _random(capture, dropout_p)
    out, _ = ops.attention(q4, k4, v4, mask, float(dropout_p), is_causal, float(scale), salt,
                           like_query, rng)
    if len(leading) == 1:
        return out.squeeze(1)
    return out if len(leading) == 2 else out.reshape(*leading, *out.shape[-2:])


def _in_four(t, leading, batch: int, heads: int):
    t = t if t.shape[:-2] == leading else t.expand(*leading, *t.shape[-2:])
    if len(leading) == 1:
        return t.unsqueeze(1)  # and keeps its strides
    return t if len(leading) == 2 else t.reshape(batch, heads, *t.shape[-2:])


def _mask_in_four(mask, leading, batch: int, heads: int):
    if len(leading) == 2 or mask.dim() <= 2:
        return mask
    if len(leading) == 1:
        return mask.unsqueeze(1)
    return mask.expand(*leading, *mask.shape[-2:]).reshape(batch, heads, *mask.shape[-2:])


def _by_steps(capture, q, k, v, mask, dropout_p, is_causal, scale):
    """For a mask that takes a gradient."""
    return attended(q, k, v, mask, float(dropout_p), is_causal, scale,
                    *_random(capture, dropout_p))


def _random(capture, dropout_p: float):
    """The salt and the random state of attention with dropout."""
    return (capture.draw_salt(), capture.random_state()) if dropout_p > 0.0 else (0, None)


HANDLERS = {
    F.scaled_dot_product_attention: _attention,
    torch.ops.aten.scaled_dot_product_attention.default: _attention,  # in exported programs
}
