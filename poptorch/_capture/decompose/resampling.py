"""Decompositions of padding and resampling; they join the table of ``decompose``."""

import torch

from poptorch._capture.decompose.table import decomposes, elementwise

aten = torch.ops.aten


# -- padding by reflection and replication -----------------------------------------------------


def _pairs(x, padding):
    """``(dim, before, after)`` of each padded dimension, the last one first."""
    return [(x.dim() - 1 - i, padding[2 * i], padding[2 * i + 1]) for i in range(len(padding) // 2)]


def _mirrored(x, dim: int, count: int, is_end: bool):
    return x.narrow(dim, x.shape[dim] - 1 - count if is_end else 1, count).flip(dim)


def _repeated(x, dim: int, count: int, is_end: bool):
    sizes = list(x.shape)
    sizes[dim] = count
    return x.narrow(dim, x.shape[dim] - 1 if is_end else 0, 1).expand(sizes)


def _padding(edge):
    """A padding; ``edge`` returns the elements at one end of a dimension."""
    def forward(x, padding):
        if min(padding) < 0:
            return NotImplemented
        for dim, before, after in _pairs(x, padding):
            parts = [edge(x, dim, before, False)] if before else []
            parts.append(x)
            if after:
                parts.append(edge(x, dim, after, True))
            x = torch.cat(parts, dim)
        return x

    return forward


def _padding_backward(reduced, distance: int):
    """The gradient: ``reduced(part, dim)`` of what was added at an end is added so far from it."""
    def backward(grad, x, padding):
        if min(padding) < 0:
            return NotImplemented
        for dim, before, after in reversed(_pairs(x, padding)):
            size = grad.shape[dim] - before - after
            inner = grad.narrow(dim, before, size)
            for start, count in ((0, before), (before + size, after)):
                if count:
                    part = reduced(grad.narrow(dim, start, count), dim)
                    left = size - part.shape[dim] - distance
                    inner = inner + _padded(part, dim, *((left, distance) if start else
                                                         (distance, left)))
            grad = inner
        return grad

    return backward


def _padded(x, dim: int, before: int, after: int):
    padding = [0, 0] * (x.dim() - 1 - dim) + [before, after]
    return aten.constant_pad_nd.default(x, padding, 0.0)


for _kind, _edge, _of_edge, _distance in (
        ("reflection", _mirrored, lambda part, dim: part.flip(dim), 1),
        ("replication", _repeated, lambda part, dim: part.sum(dim, keepdim=True), 0)):
    for _rank in (1, 2, 3):
        decomposes(getattr(aten, f"{_kind}_pad{_rank}d").default)(_padding(_edge))
        elementwise(getattr(aten, f"{_kind}_pad{_rank}d_backward").default)(
            _padding_backward(_of_edge, _distance))


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
