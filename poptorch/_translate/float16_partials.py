"""Products of float16 numbers with sums in float16: matrix products and convolutions, and the
gradients of both, become the op ``float16_partials_matmul``.

Its sums are cut into chunks of 16 products; the float32 sum of each is added to a sum that is
rounded to float16. So their order matters. Of a matrix product it is that of the inner dimension;
of a convolution and of the gradient of its input, positions in the kernel one after the other, the
channels of a group within each; of the gradient of its weight, images one after the other, the
pixels of each in order. Where a kernel reaches beyond an image, or between the numbers of one that
is spread by a stride, zeros are multiplied.

An IPU computes a convolution at once. So the product carries the sizes of the convolution,
``conv_sizes`` (csrc/device/cost/cost.h), and ops that only order elements carry ``im2col``: the
costs are those of the convolution.
"""

import itertools
import math
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from poptorch import _C

# The passes of a convolution from wide to narrow images, as csrc/device numbers them.
_FORWARD, _BACKWARD, _WEIGHT_UPDATE = range(3)
PRODUCTS = frozenset({"addmm", "baddbmm", "convolution", "convolution_backward", "matmul"})


def applies(name: str, operands: list) -> bool:
    """Whether an op is a product of float16 numbers, of at least one of them."""
    return name in PRODUCTS and all(
        value is None or (value.dtype == "f16" and 0 not in value.sizes) for value in operands)


def emit(e, name: str, operands: list, attrs: dict) -> list:
    """Appends what has the results of a product; ``name``, ``operands`` and ``attrs`` are those of
    its op."""
    types = _C.infer(name, [value and (value.dtype, list(value.sizes)) for value in operands],
                     attrs)
    if name == "matmul":
        return [_product(e, *operands)]
    if name == "convolution":
        return [_convolution(e, *operands, _Geometry.of(operands[0], operands[1], types[0], attrs))]
    if name == "convolution_backward":
        gradient, x, weight = operands
        output = (gradient.dtype, list(gradient.sizes))
        return _gradients(e, gradient, x, weight, _Geometry.of(x, weight, output, attrs),
                          attrs["output_mask"])
    return [_added(e, *operands, attrs)]


def _product(e, a, b):
    return e.rounds_itself("float16_partials_matmul", a, b)


def _added(e, start, a, b, attrs):
    """``beta * start + alpha * a @ b``, rounded once more."""
    alpha, beta = (float(attrs.get(name, 1.0)) for name in ("alpha", "beta"))
    product = _product(e, a, b)
    if alpha == beta == 1:
        return e.op("add", product, e.expand(start, product.sizes))

    def times(value, factor):
        wide = e.cast(value, torch.float32)
        return wide if factor == 1 else e.op("mul", wide, e.constant(factor, torch.float32))

    total = times(product, alpha)
    if beta != 0:
        total = e.op("add", total, times(e.expand(start, product.sizes), beta))
    return e.cast(total, torch.float16)


@dataclass(frozen=True)
class _Geometry:
    """Sizes of a convolution from ``wide`` images to ``narrow`` ones, with a pixel for each place
    of the kernel; a transposed one goes from narrow to wide."""

    groups: int
    wide: list[int]
    narrow: list[int]
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool

    @classmethod
    def of(cls, x, weight, output, attrs) -> "_Geometry":
        kernel = list(weight.sizes)[2:]

        def each(name):
            values = attrs[name]
            return list(values) if len(values) > 1 else list(values) * len(kernel)

        ends = list(x.sizes)[2:], list(output[1])[2:]
        wide, narrow = reversed(ends) if attrs["transposed"] else ends
        return cls(attrs["groups"], wide, narrow, kernel, each("stride"), each("padding"),
                   each("dilation"), attrs["transposed"])

    def sizes(self, direction: int, images: int, weight) -> list[int]:
        """``conv_sizes`` of a pass."""
        dims = zip(self.wide, self.narrow, self.kernel, self.stride, self.padding, self.dilation)
        return [direction, self.groups, images, weight.sizes[1],
                weight.sizes[0] // self.groups, *itertools.chain(*dims)]

    @property
    def positions(self) -> list[tuple[int, ...]]:
        """Those in the kernel, in the order of memory."""
        return list(itertools.product(*map(range, self.kernel)))


@contextmanager
def _notes(e, **notes):
    """The ops inside also carry ``notes``; those that are None they do not carry."""
    before = e.notes
    after = {**before, **notes}
    e.notes = {name: value for name, value in after.items() if value is not None}
    try:
        yield
    finally:
        e.notes = before


def _ordering(e):
    # The backward pass orders elements itself: what the forward pass ordered is not kept.
    return _notes(e, im2col=e.part)


def _conv_product(e, a, b, sizes: list[int]):
    with _notes(e, im2col=None, conv_sizes=sizes):
        return _product(e, a, b)


def _convolution(e, x, weight, bias, g: _Geometry):
    with _ordering(e):
        if g.transposed:
            y = _spread_product(e, x, weight, g)
        else:
            sizes = g.sizes(_FORWARD, x.sizes[0], weight)
            product = _conv_product(e, _im2col(e, x, g), _by_input(e, weight, g), sizes)
            y = _images(e, product, x.sizes[0], g.narrow)
    if bias is None:
        return y
    return e.op("add", y, e.reshape(bias, [1, y.sizes[1], *[1] * len(g.kernel)]))


def _gradients(e, gradient, x, weight, g: _Geometry, wanted) -> list:
    empty = e.full([0], 0.0, torch.float16) if not all(wanted) else None
    results = [empty] * 3
    with _ordering(e):
        results[:2] = _products_of_gradients(e, gradient, x, weight, g, wanted, empty)
    if wanted[2]:
        dims = [0, *range(2, len(x.sizes))]
        results[2] = e.op("sum", gradient, dim=dims, keepdim=False)
    return results


def _products_of_gradients(e, gradient, x, weight, g: _Geometry, wanted, empty) -> list:
    """The gradients of the input and of the weight, or ``empty``."""
    wide, narrow = (gradient, x) if g.transposed else (x, gradient)
    columns = _im2col(e, wide, g) if wanted[1] or (wanted[0] and g.transposed) else None
    results = [empty] * 2
    if wanted[0] and g.transposed:
        sizes = g.sizes(_FORWARD, x.sizes[0], weight)
        product = _conv_product(e, columns, _by_input(e, weight, g), sizes)
        results[0] = _images(e, product, x.sizes[0], g.narrow)
    elif wanted[0]:
        results[0] = _spread_product(e, gradient, weight, g)
    if wanted[1]:
        rows = e.op("permute", _pixels(e, narrow, g), dims=[0, 2, 1])
        product = _conv_product(e, rows, columns, g.sizes(_WEIGHT_UPDATE, x.sizes[0], weight))
        # [groups, narrow channels, positions * wide ones]
        sizes = [narrow.sizes[1], len(g.positions), wide.sizes[1] // g.groups]
        results[1] = _rearranged(e, product, sizes, [0, 2, 1], weight.sizes)
    return results


def _im2col(e, wide, g: _Geometry):
    """im2col, by the pixels of the narrow images: [groups, pixels of all images,
    positions * channels of a group]."""
    pads = []
    for size, narrow, kernel, stride, padding, dilation in reversed(list(zip(
            g.wide, g.narrow, g.kernel, g.stride, g.padding, g.dilation))):
        seen = (narrow - 1) * stride + (kernel - 1) * dilation + 1
        pads += [padding, seen - size - padding]
    padded = _padded(e, wide, pads)
    return _met_by_taps(e, padded, g, g.positions, g.narrow, g.stride)


def _met_by_taps(e, padded, g: _Geometry, positions, sizes, steps):
    """What each tap of the kernel, one for each of ``positions``, meets of an image: ``sizes``
    pixels, ``steps`` apart, side by side."""
    parts = []
    for position in positions:
        part = padded
        for dim, (index, size, step, dilation) in enumerate(zip(
                position, sizes, steps, g.dilation)):
            start = index * dilation
            part = e.slice(part, dim + 2, start, start + (size - 1) * step + 1, step)
        parts.append(part)
    return _side_by_side(e, parts, g)


def _spread_product(e, narrow, weight, g: _Geometry):
    """The wide image whose gradient is a narrow one: its pixels ``stride`` apart, zeros
    between them, seen by the kernel backwards."""
    spread, pads = narrow, []
    for dim, (size, stride) in enumerate(zip(g.narrow, g.stride)):
        if stride > 1:
            sizes = list(spread.sizes)
            sizes[dim + 2] = (size - 1) * stride + 1
            spread = e.op("slice_backward", spread, input_sizes=sizes, dim=dim + 2, start=0,
                          end=sizes[dim + 2], step=stride)
    for size, wide, kernel, padding, dilation in reversed(list(zip(
            list(spread.sizes)[2:], g.wide, g.kernel, g.padding, g.dilation))):
        reach = (kernel - 1) * dilation
        pads += [reach - padding, wide + padding - size]
    padded = _padded(e, spread, pads)
    backwards = [[kernel - 1 - index for index, kernel in zip(position, g.kernel)]
                 for position in g.positions]
    columns = _met_by_taps(e, padded, g, backwards, g.wide, [1] * len(g.wide))
    product = _conv_product(e, columns, _by_output(e, weight, g),
                            g.sizes(_BACKWARD, narrow.sizes[0], weight))
    return _images(e, product, narrow.sizes[0], g.wide)


def _padded(e, x, pads: list[int]):
    return x if not any(pads) else e.op("constant_pad_nd", x, pad=pads, value=0.0)


def _side_by_side(e, parts: list, g: _Geometry):
    joined = parts[0] if len(parts) == 1 else e.op("cat", *parts, dim=1)
    images, channels = parts[0].sizes[0], parts[0].sizes[1] // g.groups
    pixels = math.prod(list(parts[0].sizes)[2:])
    return _rearranged(e, joined, [images, len(parts), g.groups, channels, pixels],
                       [2, 0, 4, 1, 3], [g.groups, images * pixels, len(parts) * channels])


def _pixels(e, narrow, g: _Geometry):
    """[groups, pixels of all images, channels of a group]."""
    images, channels = narrow.sizes[0], narrow.sizes[1] // g.groups
    pixels = math.prod(g.narrow)
    return _rearranged(e, narrow, [images, g.groups, channels, pixels], [1, 0, 3, 2],
                       [g.groups, images * pixels, channels])


def _by_input(e, weight, g: _Geometry):
    """Weights [narrow channels, wide ones of a group, ...] as [groups, positions * wide ones,
    narrow ones of a group]."""
    outputs, inputs, places = weight.sizes[0] // g.groups, weight.sizes[1], len(g.positions)
    return _rearranged(e, weight, [g.groups, outputs, inputs, places], [0, 3, 2, 1],
                       [g.groups, places * inputs, outputs])


def _by_output(e, weight, g: _Geometry):
    """The same as [groups, positions * narrow ones of a group, wide ones]."""
    outputs, inputs, places = weight.sizes[0] // g.groups, weight.sizes[1], len(g.positions)
    return _rearranged(e, weight, [g.groups, outputs, inputs, places], [0, 3, 1, 2],
                       [g.groups, places * outputs, inputs])


def _images(e, product, images: int, sizes: list[int]):
    """[groups, pixels of all images, channels of a group] as images."""
    groups, channels = product.sizes[0], product.sizes[2]
    pixels = product.sizes[1] // images
    return _rearranged(e, product, [groups, images, pixels, channels], [1, 0, 3, 2],
                       [images, groups * channels, *sizes])


def _rearranged(e, x, sizes: list[int], dims: list[int], result):
    """``x`` of ``sizes``, its dimensions in another order, with the sizes of the result."""
    return e.reshape(e.op("permute", e.reshape(x, sizes), dims=dims), result)
