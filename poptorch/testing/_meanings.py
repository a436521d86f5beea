"""What poptorch's own operations mean, in PyTorch; those without an entry are not compared."""

import torch
import torch.nn.functional as F

from poptorch._capture.library import (  # noqa: F401  (they declare operations)
    dynamic,
    embedding,
    products,
    value_checks,
    without_gradient,
)
from poptorch._capture.library.layers import ops

aten = torch.ops.aten


def batch_norm(x, weight, bias, running_mean, running_var, momentum, eps):
    new = [old if old is None else old.clone() for old in (running_mean, running_var)]
    found = torch.native_batch_norm(x, weight, bias, *new, True, momentum, eps)
    return *found, *(x.new_empty(0) if value is None else value for value in new)


def batch_norm_inference(x, weight, bias, running_mean, running_var, eps):
    return F.batch_norm(x, running_mean, running_var, weight, bias, eps=eps)


def batch_norm_backward(grad, x, weight, mean, invstd, training):
    return aten.native_batch_norm_backward(grad, x, weight, mean, invstd**-2, mean, invstd,
                                           training, 0.0, [True] * 3)


def attention_scores(q, k, mask, is_causal, scale):
    scores = q @ k.transpose(-2, -1) * scale
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask


def attention(q, k, v, mask, dropout_p, is_causal, scale, salt, like_query=False):
    scores = attention_scores(q, k, mask, is_causal, scale)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def attention_backward(grad, q, k, v, mask, logsumexp, *settings):
    with torch.enable_grad():
        q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
        return torch.autograd.grad(attention(q, k, v, mask, *settings)[0], (q, k, v), grad)


def embedding_bag(weight, indices, offsets, per_sample_weights, mode, padding_idx,
                  include_last_offset):
    return F.embedding_bag(
        indices, weight, offsets, mode=mode, per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=None if padding_idx < 0 else padding_idx)


def embedding_bag_backward(grad_output, weight, indices, offsets, per_sample_weights, *settings):
    samples = per_sample_weights
    with torch.enable_grad():
        wanted = [t.detach().requires_grad_() for t in (weight, samples) if t is not None]
        out = embedding_bag(wanted[0], indices, offsets, *(wanted[1:] or [None]), *settings)
        dweight, *dsamples = torch.autograd.grad(out, wanted, grad_output)
    return dweight, dsamples[0] if dsamples else weight.new_empty(0)


def view(x, size):
    """A view of values, whose memory layout depends on the graph's operations."""
    return x.reshape(size) if isinstance(size, list) else x.contiguous().view(size)


def elements(x, size, stride, offset):
    return x.contiguous().clone().as_strided(size, stride, offset).clone()


def elements_scatter(x, src, size, stride, offset):
    out = x.contiguous().clone()
    out.as_strided(size, stride, offset).copy_(src)
    return out


def serialized_matmul(lhs, rhs, cut, factor, keep_precision):
    return lhs @ rhs


def checkpoint(x):
    return x.new_empty(0)


def dynamic_slice(self, dim, start, size, step):
    return self.narrow(dim, int(start), size).movedim(dim, 0)[::step].movedim(0, dim)


def dynamic_update(self, src, dim, start, size, step):
    out = self.clone()
    dynamic_slice(out, dim, start, size, step).copy_(src)
    return out


def checked(condition, words, values):
    if not condition:
        raise ValueError(words)
    return values


IMPLEMENTATIONS = {
    getattr(ops, function.__name__).default: function
    for function in (
        batch_norm, batch_norm_inference, batch_norm_backward, attention,
        attention_backward, embedding_bag, embedding_bag_backward, elements, elements_scatter,
        torch.bincount, serialized_matmul, checkpoint, checked, dynamic_slice, dynamic_update)
}
IMPLEMENTATIONS.update(dict.fromkeys(
    (aten.view.default, aten._unsafe_view.default, aten.view.dtype), view))
