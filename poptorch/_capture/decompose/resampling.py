"""Decompositions of padding and resampling; they join the table of ``decompose``."""

import torch

from poptorch._capture.decompose.table import decomposes, elementwise

aten = torch.ops.aten


# -- padding by reflection and replication -----------------------------------------------------


def _pairs(x, padding):
    """``(dim, before, after)`` of each padded dimension, the last one first."""
    return [(x.dim() - 1 - i, padding[2 * i], padding[2 * i + 1]) for i in range(len(padding) // 2)]


def _reflect(x, dim: int, before: int, after: int):
    size = x.shape[dim]
    parts = []
    if before:
        parts.append(x.narrow(dim, 1, before).flip(dim))
    parts.append(x)
    if after:
        parts.append(x.narrow(dim, size - 1 - after, after).flip(dim))
    return torch.cat(parts, dim)


def _reflect_backward(grad, dim: int, before: int, after: int):
    size = grad.shape[dim] - before - after
    inner = grad.narrow(dim, before, size)
    if before:
        part = grad.narrow(dim, 0, before).flip(dim)
        inner = inner + _padded(part, dim, 1, size - 1 - before)
    if after:
        part = grad.narrow(dim, before + size, after).flip(dim)
        inner = inner + _padded(part, dim, size - 1 - after, 1)
    return inner


def _replicate(x, dim: int, before: int, after: int):
    def edge(start: int, count: int):
        shape = list(x.shape)
        shape[dim] = count
        return x.narrow(dim, start, 1).expand(shape)

    parts = [edge(0, before)] if before else []
    parts.append(x)
    if after:
        parts.append(edge(x.shape[dim] - 1, after))
    return torch.cat(parts, dim)


def _replicate_backward(grad, dim: int, before: int, after: int):
    size = grad.shape[dim] - before - after
    inner = grad.narrow(dim, before, size)
    if before:
        part = grad.narrow(dim, 0, before).sum(dim, keepdim=True)
        inner = inner + _padded(part, dim, 0, size - 1)
    if after:
        part = grad.narrow(dim, before + size, after).sum(dim, keepdim=True)
        inner = inner + _padded(part, dim, size - 1, 0)
    return inner


def _padded(x, dim: int, before: int, after: int):
    padding = [0, 0] * (x.dim() - 1 - dim) + [before, after]
    return aten.constant_pad_nd.default(x, padding, 0.0)


def _padding(one_dim):
    def forward(x, padding):
        if min(padding) < 0:
            return NotImplemented
        for dim, before, after in _pairs(x, padding):
            x = one_dim(x, dim, before, after)
        return x

    return forward


def _padding_backward(one_dim):
    def backward(grad, x, padding):
        if min(padding) < 0:
            return NotImplemented
        for dim, before, after in reversed(_pairs(x, padding)):
            grad = one_dim(grad, dim, before, after)
        return grad

    return backward


for _kind, _forward, _backward in (("reflection", _reflect, _reflect_backward),
                                   ("replication", _replicate, _replicate_backward)):
    for _rank in (1, 2, 3):
        decomposes(getattr(aten, f"{_kind}_pad{_rank}d").default)(_padding(_forward))
        elementwise(getattr(aten, f"{_kind}_pad{_rank}d_backward").default)(
            _padding_backward(_backward))


# -- resampling in one dimension by that in two ------------------------------------------------


@decomposes(aten.upsample_linear1d.default)
def _linear1d(x, output_size, align_corners, scales=None):
    return aten.upsample_bilinear2d.default(
        x.unsqueeze(2), [1, *output_size], align_corners, None, scales).squeeze(2)


@decomposes(aten.upsample_linear1d_backward.default)
def _linear1d_backward(grad, output_size, input_size, align_corners, scales=None):
    n, c, width = input_size
    return aten.upsample_bilinear2d_backward.default(
        grad.unsqueeze(2), [1, *output_size], [n, c, 1, width], align_corners, None,
        scales).squeeze(2)


@decomposes(aten.upsample_nearest1d.default)
def _nearest1d(x, output_size, scales=None):
    width, size = x.shape[2], output_size[0]
    if scales is not None and scales > 0 and size in (width, 2 * width):
        # As eager's loop in one dimension, which heeds the scale where those of two do not.
        step = torch.arange(size, dtype=torch.float32) * (1.0 / scales)
        return x.index_select(2, step.floor().long().clamp(max=width - 1))
    return aten.upsample_nearest2d.default(
        x.unsqueeze(2), [1, *output_size], None, scales).squeeze(2)


@decomposes(aten.upsample_nearest1d_backward.default)
def _nearest1d_backward(grad, output_size, input_size, scales=None):
    n, c, width = input_size
    return aten.upsample_nearest2d_backward.default(
        grad.unsqueeze(2), [1, *output_size], [n, c, 1, width], None, scales).squeeze(2)
