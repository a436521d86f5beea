"""Dropout and batch norm, in all forms that torch has, by poptorch's own operations."""

import math

import torch
import torch.nn.functional as F

from poptorch._base.layout import as_row_major
from poptorch._base.torch_private import tracing as private
from poptorch._capture.decompose.table import computed_in
from poptorch._capture.graph.zero_gradients import with_zero_path
from poptorch._capture.library import replicas  # noqa: F401  (declares all_reduce)
from poptorch._capture.library.layers import normed_format, ops

_ALPHA = 1.7580993408473766  # of SELU: scale times alpha


# -- dropout -----------------------------------------------------------------------------------


def _dropout(capture, x, p, training, inplace, shape=None):
    """Dropout of elements, or of the parts that a mask of ``shape`` covers."""
    if not 0.0 <= p <= 1.0:
        return NotImplemented
    if not training or p == 0.0 or x.numel() == 0:
        return x
    if not x.is_floating_point():
        return NotImplemented  # torch has the words for it
    if p == 1.0:
        out = x * 0.0
    elif shape is None:
        out = ops.dropout(x, float(p), capture.draw_salt(), capture.random_state())
    else:
        out = x * _mask(capture, x, p, shape)
    return x.copy_(out) if inplace else out


def _mask(capture, x, p, shape):
    """Zero where dropped, ``1 / (1 - p)`` elsewhere; has the strides of ``x``, if it has its
    sizes."""
    mask = ops.dropout(x.new_ones(shape), float(p), capture.draw_salt(), capture.random_state())
    return capture.recorder.as_copy_of(x, mask) if shape == x.shape else mask


def _elements(capture, func, input, p=0.5, training=True, inplace=False, *, train=None):
    """``train`` is what torch.dropout calls ``training``."""
    return _dropout(capture, input, p, training if train is None else train,
                    inplace or func is torch.dropout_)


def _native(capture, func, input, p, train):
    """Handler of native_dropout, which programs that torch has decomposed have."""
    if not 0.0 <= p <= 1.0 or not input.is_floating_point():
        return NotImplemented  # torch has the words for it
    if train is False or p == 0.0:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    kept = _mask(capture, input, p, input.shape) if p < 1.0 else input.new_zeros(input.shape)
    return input * kept, kept != 0


def _channels(dims: int):
    """Handler of dropout1d, 2d or 3d: whole channels of ``dims`` dimensions are dropped."""

    def handler(capture, func, input, p=0.5, training=True, inplace=False):
        leading = input.dim() - dims
        # Other ranks warn or fail, and some have another meaning: left to torch.
        if leading not in (1, 2) or (dims == 2 and leading == 1):
            return NotImplemented
        shape = [*input.shape[:leading], *[1] * dims]
        return _dropout(capture, input, p, training, inplace, shape)

    return handler


def _alpha(per_channel: bool):
    """Handler of alpha_dropout and feature_alpha_dropout, which keep mean and variance."""

    def handler(capture, func, input, p=0.5, training=False, inplace=False):
        if not 0.0 < p < 1.0 or not training:
            return NotImplemented
        shape = input.shape
        if per_channel:
            shape = [*shape[:2], *[1] * (input.dim() - 2)]
        # In place as in eager, for the layout of the result.
        kept = _mask(capture, input, p, shape).mul_(1.0 - p)
        a = 1.0 / math.sqrt((_ALPHA**2 * p + 1.0) * (1.0 - p))
        shift = (kept - 1.0) * (_ALPHA * a) + _ALPHA * a * p
        out = (input * kept.mul_(a)).add_(shift)
        return input.copy_(out) if inplace else out

    return handler


def _rrelu(capture, func, input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    if not lower <= upper or not input.is_floating_point():
        return NotImplemented  # torch has the words for it
    if not inplace:
        input = as_row_major(input)  # as the result lies in eager
    if not training:
        return F.leaky_relu(input, (lower + upper) / 2, inplace)
    # Rounded afterwards: a draw in 16 bits that is rounded to the end would become the start.
    slope = torch.empty_like(input, dtype=computed_in(input.dtype), requires_grad=False)
    slope = slope.uniform_(lower, upper).to(input.dtype)
    x = with_zero_path(input)
    out = torch.where(x <= 0, x * slope, x)
    return input.copy_(out) if inplace else out


def _aten_rrelu(capture, func, input, lower=1.0 / 8, upper=1.0 / 3, training=False,
                generator=None):
    options = lower, upper, training, func is torch.rrelu_
    return NotImplemented if generator is not None else _rrelu(capture, func, input, *options)


# -- batch norm --------------------------------------------------------------------------------


def _batch_norm(capture, func, x, running_mean, running_var, weight=None, bias=None, training=False,
                momentum=0.1, eps=1e-5):
    parts = [t for t in (running_mean, running_var, weight, bias) if t is not None]
    sharing = capture.statistics_replicas() if training else 1
    if (x.dim() < 2 or x.shape[1] == 0
            or (training and (x.numel() * sharing <= x.shape[1] or eps <= 0))
            or not x.is_floating_point() or any(t.shape != x.shape[1:2] for t in parts)
            or _are_trained(running_mean, running_var)):
        return NotImplemented  # torch has the words for it
    _check_types(capture, x, (weight, bias), (running_mean, running_var))
    weight = _beside(bias, weight, x)
    if not training:
        if running_mean is None or running_var is None:
            return NotImplemented
        return ops.batch_norm_inference(x, weight, bias, running_mean, running_var, eps)
    count = capture.take_batch_count()
    factor = 1.0 if count is not None or momentum is None else float(momentum)
    if sharing > 1:
        return _synced(sharing, x, weight, bias, (running_mean, running_var), factor, eps, count)
    before = [_wide(running) if count is not None else running
              for running in (running_mean, running_var)]
    operands = x, weight, bias, *before, factor, eps
    try:
        y, _, _, *statistics = ops.batch_norm(*operands)
    except private.StopRecomputation:
        # A checkpoint's recomputation ends where its last operation has kept what it keeps. By
        # then eager's has updated the statistics.
        with torch.no_grad():
            _, _, _, *statistics = ops.batch_norm(*operands)
        _update(running_mean, running_var, statistics, count)
        raise
    _update(running_mean, running_var, statistics, count)
    return y


def _synced(sharing: int, x, weight, bias, running, momentum, eps, count):
    """Batch norm with the statistics of all replicas.

    The variance is that of each replica plus that of their means: the mean of the squares less the
    square of the mean would lose a small one.
    """
    dims, sizes = [0, *range(2, x.dim())], (1, -1, *[1] * (x.dim() - 2))

    def mean_of(statistics):
        return ops.all_reduce(statistics, sharing, False) / sharing

    wide = x.contiguous(memory_format=normed_format(x)).to(computed_in(x.dtype))
    own_var, own_mean = torch.var_mean(wide, dims, correction=0)
    mean = mean_of(own_mean)
    var = mean_of(own_var + (own_mean - mean).square())
    with torch.no_grad():  # before x is normed, where a checkpoint's recomputation may end
        number = sharing * x.numel() // x.shape[1]
        new = mean, var * (number / (number - 1))
        _update(*running, [old if old is None else
                           _wide(old) * (1 - momentum) + value * momentum
                           for old, value in zip(running, new)], count)
    out = (wide - mean.view(sizes)) * torch.rsqrt(var + eps).view(sizes)
    if weight is not None:
        out = out * weight.view(sizes)
    if bias is not None:
        out = out + bias.view(sizes)
    return out.to(x.dtype)


def _are_trained(running_mean, running_var) -> bool:
    """Whether running statistics would get a gradient: there is none."""
    return torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (running_mean, running_var))


def _check_types(capture, x, parameters, statistics) -> None:
    """Raises an Error where the statistics have another type than the parameters, as in torch.
    Those of 16-bit numbers may be of single precision."""
    own = {t.dtype for t in parameters if t is not None} or {x.dtype}
    beside = {t.dtype for t in statistics if t is not None}
    wide = {computed_in(dtype) for dtype in own}
    if len(own) > 1 or len(beside) > 1 or beside and beside not in (own, wide):
        kept = ", ".join(sorted(map(str, beside))) or "none"
        what = "the parameters are" if any(t is not None for t in parameters) else "the input is"
        raise capture.recorder.error(
            f"[batch_norm] {what} {', '.join(sorted(map(str, own)))}, the running statistics "
            f"{kept}. Give all of them one type: `module.to(dtype)`. Statistics of 16-bit numbers "
            f"may be float32.")


def _beside(bias, weight, x):
    """The weight of a norm. Where there is a bias of another type than ``x`` alone, it is 1 in the
    type of the bias, which so is the type of both gradients."""
    if weight is None and bias is not None and bias.dtype is not x.dtype:
        return torch.ones_like(bias, requires_grad=False)
    return weight


def _wide(running):
    """Statistics that an average is taken of: rounded once, when they are kept."""
    return running if running is None or running.itemsize > 2 else running.float()


@torch.no_grad()
def _update(running_mean, running_var, statistics, count) -> None:
    """Sets the new statistics; with ``count`` they are the average over that many batches."""
    for running, value in zip((running_mean, running_var), statistics):
        if running is None:
            continue
        if count is not None:  # as torch weighs them: a difference would lose the small one
            share = count.to(value.dtype).reciprocal()
            value = _wide(running) * (1 - share) + value * share
        running.copy_(value)


def _aten_batch_norm(capture, func, input, weight, bias, running_mean, running_var, training,
                     momentum, eps, cudnn_enabled=False):
    return _batch_norm(capture, func, input, running_mean, running_var, weight, bias, training,
                       momentum, eps)


def _batch_count(capture, func, count):
    """``float(num_batches_tracked)`` or ``num_batches_tracked.item()``, by which batch norm without
    momentum takes averages."""
    return capture.note_batch_count(count)


def _instance_norm(capture, func, input, running_mean=None, running_var=None, weight=None,
                   bias=None, use_input_stats=True, momentum=0.1, eps=1e-5):
    if not use_input_stats or input.dim() < 3 or input.numel() == 0 \
            or input.shape[2:].numel() == 1 or _are_trained(running_mean, running_var):
        return NotImplemented
    n, c = input.shape[:2]
    weight = _beside(bias, weight, input)
    parts = [t if t is None else t.repeat(n) for t in
             (weight, bias, running_mean, running_var)]
    x = input.contiguous().view(1, n * c, *input.shape[2:])  # as eager, for its strides
    y, _, _, mean, var = ops.batch_norm(x, *parts, float(momentum), eps)
    if running_mean is not None:
        with torch.no_grad():
            running_mean.copy_(mean.view(n, c).mean(0))
            running_var.copy_(var.view(n, c).mean(0))
    return y.reshape(input.shape)


HANDLERS = {
    F.dropout: _elements,
    torch.dropout: _elements,
    torch.dropout_: _elements,
    torch.ops.aten.dropout.default: _elements,  # in exported programs
    torch.native_dropout: _native,
    torch.ops.aten.native_dropout.default: _native,
    F.dropout1d: _channels(1),
    F.dropout2d: _channels(2),
    F.dropout3d: _channels(3),
    F.alpha_dropout: _alpha(per_channel=False),
    F.feature_alpha_dropout: _alpha(per_channel=True),
    F.rrelu: _rrelu,
    torch.rrelu: _aten_rrelu,
    torch.rrelu_: _aten_rrelu,
    F.batch_norm: _batch_norm,
    torch.batch_norm: _aten_batch_norm,
    torch.ops.aten.batch_norm.default: _aten_batch_norm,
    F.instance_norm: _instance_norm,
    torch.Tensor.__float__: _batch_count,
    torch.Tensor.item: _batch_count,
}
