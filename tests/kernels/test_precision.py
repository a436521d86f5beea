"""Long sums lose no more digits than PyTorch's: norms, reductions, gradients of poolings and
convolutions, in both layouts, against float64.

The measure is eager's error in the worse of its two layouts, for the same values. Eager's own
forward pass gives the statistics that its gradients read, and ours those that ours read. What
rounds a mean shifts a whole gradient, so that one draw of values may have almost no error by
chance: errors are root mean squares of several draws.
"""

import copy
from collections import defaultdict

import numpy as np
import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import Cases, quiet_options
from tests.ops.sample import Sample, evaluate, first_channels, last_channels

aten = torch.ops.aten
FACTOR = 4  # an error may be so many times as large as eager's,
ULPS = 4  # or so many roundings of the exact result
DRAWS = 8
MODULE_DRAWS = 4
MOST_ELEMENTS = 1 << 19
EPS = 1e-5
LAYOUTS = {"channels-first": torch.contiguous_format, "channels-last": torch.channels_last}
ALL = [True, True, True]
# The mean of the values, that of the gradients.
OFFSETS = [(0, 0), (5, 0), (1000, 0), (0, 3), (-30, 0.1), (1000, 1000)]


class Errors:
    """Of each result that has a name: squared errors, ours and eager's, and squared roundings."""

    def __init__(self):
        self._squares = defaultdict(list)

    def add(self, name, ours, eager, exact):
        """One draw: ``ours`` and ``exact`` are lists, ``eager`` a list of lists."""
        for i, (x, reference) in enumerate(zip(ours, exact, strict=True)):
            errors = [square(x, reference), *(square(each[i], reference) for each in eager)]
            rounding = (reference.double() * 2**-24).square().sum().item()
            self._squares[f"{name}, result {i}"].append([*errors, rounding])

    def judge(self):
        """Fails with all results that are over the limit."""
        with Cases() as cases:
            for name, draws in self._squares.items():
                ours, *eager, rounding = np.mean(draws, axis=0) ** 0.5
                with cases.case(name):
                    assert ours <= FACTOR * max(eager) + ULPS * rounding, \
                        f"error {ours:.2e}, eager's {max(eager):.2e}, a rounding {rounding:.2e}"


def square(x, reference):
    return (x.double() - reference.double()).square().sum().item()


def in_dtype(tensors, dtype, layout=torch.contiguous_format):
    """The tensors in ``dtype``, images in a memory layout."""
    return [x.to(dtype).contiguous(memory_format=layout if x.dim() == 4 else
                                   torch.contiguous_format) for x in tensors]


def beside_eager(function, *tensors):
    """Results of ``function`` in float32, for each layout, and in float64."""
    narrow = [function(*in_dtype(tensors, torch.float32, layout)) for layout in LAYOUTS.values()]
    return narrow, function(*in_dtype(tensors, torch.float64))


def run(op, operands, attrs, layout="channels-first"):
    """Results of the row's kernel on two threads, channels as dimension 1."""
    if layout == "channels-first":
        return evaluate(Sample(op, None, attrs), operands, threads=2)
    attrs = attrs | {"layout": "channels_last"}
    results = evaluate(Sample(op, None, attrs), [last_channels(x) for x in operands], threads=2)
    return [first_channels(x) for x in results]


def image_sizes(rng):
    """Many pixels and few channels, few and many, and what lies between."""
    channels = int(rng.choice([3, 8, 16, 32, 60, 96, 300, 1280]))
    batch = int(rng.choice([2, 16, 48]))
    most = min(112, int((MOST_ELEMENTS / (batch * channels)) ** 0.5))
    return batch, channels, int(rng.integers(most // 2 + 1, most + 1)), most


def values(sizes, offset, scale=1.0):
    return torch.randn(sizes) * scale + offset


def per_channel(channels):
    return torch.rand(channels) + 0.5, torch.randn(channels)


# -- one op: of drawn sizes, a function that adds one draw of values --


def batch_norm(rng, offsets, errors):
    sizes = image_sizes(rng)
    weight, bias = per_channel(sizes[1])

    def eager(x, g, weight, bias):
        y, *statistics = aten.native_batch_norm(x, weight, bias, None, None, True, 0.1, EPS)
        gradients = aten.native_batch_norm_backward(g, x, weight, None, None, *statistics, True,
                                                    EPS, ALL)
        return [y, *statistics, *gradients]

    def draw():
        x, g = values(sizes, offsets[0], 2), values(sizes, offsets[1], 1 / sizes[0])
        expected = beside_eager(eager, x, g, weight, bias)
        for layout in LAYOUTS:
            y, *statistics = run("batch_norm", [x, weight, bias, None, None],
                                 {"momentum": 0.1, "eps": EPS}, layout)[:3]
            gradients = run("batch_norm_backward", [g, x, weight, *statistics], {"training": True},
                            layout)
            errors.add(f"batch norm {sizes} {offsets} {layout}",
                       [y, *statistics, *gradients[:3]], *expected)

    return draw


def layer_norm(rng, offsets, errors):
    n = int(rng.choice([8, 32, 96, 384, 768, 50_000]))
    sizes = (int(rng.integers(1, MOST_ELEMENTS // n + 1)), n)
    weight, bias = per_channel(n)
    attrs = {"normalized_shape": [n]}

    def eager(x, g, weight, bias):
        y, *statistics = aten.native_layer_norm(x, [n], weight, bias, EPS)
        return [y, *statistics, *aten.native_layer_norm_backward(g, x, [n], *statistics, weight,
                                                                 bias, ALL)]

    def draw():
        x, g = values(sizes, offsets[0], 2), values(sizes, offsets[1], 0.01)
        y, *statistics = run("native_layer_norm", [x, weight, bias], attrs | {"eps": EPS})
        gradients = run("native_layer_norm_backward", [g, x, *statistics, weight, bias],
                        attrs | {"output_mask": ALL})
        errors.add(f"layer norm {sizes} {offsets}", [y, *statistics, *gradients],
                   *beside_eager(eager, x, g, weight, bias))

    return draw


def group_norm(rng, offsets, errors):
    sizes = batch, channels, height, width = image_sizes(rng)
    groups = int(rng.choice([d for d in range(1, channels + 1) if channels % d == 0]))
    weight, bias = per_channel(channels)
    numbers = batch, channels, height * width, groups
    attrs = dict(zip(("N", "C", "HxW", "group"), numbers, strict=True))

    def eager(x, g, weight, bias):
        y, *statistics = aten.native_group_norm(x, weight, bias, *numbers, EPS)
        return [y, *statistics,
                *aten.native_group_norm_backward(g, x, *statistics, weight, *numbers, ALL)]

    def draw():
        x, g = values(sizes, offsets[0], 2), values(sizes, offsets[1], 0.01)
        y, *statistics = run("native_group_norm", [x, weight, bias], attrs | {"eps": EPS})
        gradients = run("native_group_norm_backward", [g, x, *statistics, weight],
                        attrs | {"output_mask": ALL})
        errors.add(f"group norm {sizes} of {groups} {offsets}", [y, *statistics, *gradients],
                   *beside_eager(eager, x, g, weight, bias))

    return draw


def reduction(rng, offsets, errors):
    sizes, dims = image_sizes(rng), [[0, 2, 3], [2, 3], [0, 1, 2, 3]][rng.integers(3)]
    functions = {"sum": aten.sum.dim_IntList, "mean": aten.mean.dim, "var": aten.var.correction}

    def draw():
        x = values(sizes, offsets[0])
        for op, function in functions.items():
            expected = beside_eager(lambda x: [function(x, dims)], x)
            for order in ((0, 1, 2, 3), (0, 2, 3, 1)):
                ours = run(op, [x.permute(order).contiguous()],
                           {"dim": [order.index(dim) for dim in dims]})
                errors.add(f"{op} {sizes} over {dims} {offsets} {order}", ours, *expected)

    return draw


def pooling(rng, offsets, errors):
    sizes = image_sizes(rng)
    kernel = int(rng.integers(1, min(8, *sizes[2:]) + 1))
    stride = int(rng.integers(1, kernel + 1))
    window = [kernel, kernel], [stride, stride], [kernel // 2, kernel // 2]
    attrs = dict(zip(("kernel_size", "stride", "padding"), window, strict=True))
    name = f"{sizes} {window} {offsets}"

    def draw():
        x = values(sizes, offsets[0])
        y, where = aten.max_pool2d_with_indices(x, *window)
        g = values(y.shape, offsets[1])
        errors.add(f"avg_pool2d {name}", run("avg_pool2d", [x], attrs),
                   *beside_eager(lambda x: [aten.avg_pool2d(x, *window)], x))
        errors.add(f"avg_pool2d_backward {name}", run("avg_pool2d_backward", [g, x], attrs),
                   *beside_eager(lambda g, x: [aten.avg_pool2d_backward(
                       g, x, *window, False, True, None)], g, x))
        expected = beside_eager(lambda g, x: [aten.max_pool2d_with_indices_backward(
            g, x, *window, [1, 1], False, where)], g, x)
        for layout in LAYOUTS:
            ours = run("max_pool2d_backward", [g, x, where.int()],
                       attrs | {"dilation": [1, 1], "ceil_mode": False}, layout)
            errors.add(f"max_pool2d_backward {name} {layout}", ours, *expected)

    return draw


def convolution_gradients(rng, offsets, errors):
    # Channels, outputs, groups: of all channels, of each by itself, of few.
    channels, outputs, groups = [(16, 96, 1), (96, 24, 1), (32, 64, 1), (48, 48, 48), (3, 32, 1),
                                 (1, 16, 1)][rng.integers(6)]
    batch, side = int(rng.choice([2, 8, 16])), int(rng.integers(6, 30))
    kernel, stride = int(rng.choice([1, 3, 5])), int(rng.integers(1, 3))
    steps = [stride] * 2, [kernel // 2] * 2, [1, 1], False, [0, 0], groups
    names = "stride", "padding", "dilation", "transposed", "output_padding", "groups"
    attrs = dict(zip(names, steps, strict=True)) | {"output_mask": ALL}

    def draw():
        x = values((batch, channels, side, side), offsets[0])
        weight = torch.randn(outputs, channels // groups, kernel, kernel)
        g = values(aten.convolution(x, weight, None, *steps).shape, offsets[1], 0.01)
        expected = beside_eager(lambda g, x, weight: aten.convolution_backward(
            g, x, weight, [outputs], *steps, ALL), g, x, weight)
        for layout in LAYOUTS:
            ours = run("convolution_backward", [g, x, weight], attrs, layout)
            errors.add(f"convolution_backward {list(x.shape)} {list(weight.shape)} {steps} "
                       f"{offsets} {layout}", ours, *expected)

    return draw


OPS = [batch_norm, layer_norm, group_norm, reduction, pooling, convolution_gradients]


def check_sizes(family, seed, count):
    """Checks ``count`` draws of sizes."""
    rng, errors = np.random.default_rng(seed), Errors()
    for _ in range(count):
        draw = family(rng, OFFSETS[rng.integers(len(OFFSETS))], errors)
        for _ in range(DRAWS):
            draw()
    errors.judge()


@pytest.mark.parametrize("family", OPS)
def test_ops(family, seed):
    check_sizes(family, seed, 2)


@pytest.mark.slow
@pytest.mark.parametrize("family", OPS)
def test_more_ops(family, seed):
    check_sizes(family, seed, 20)


# -- modules, with the passes --


class Weighted(nn.Module):
    """A module whose input is trained, and a loss whose gradient by its result is an argument.

    A convolution that changes no value stands before the module: images lie channels-last.
    """

    def __init__(self, inner, x):
        super().__init__()
        self.x, self.inner = nn.Parameter(x), inner
        self.same = nn.Conv2d(x.shape[1], x.shape[1], 1, groups=x.shape[1], bias=False)
        self.same.requires_grad_(False).weight.fill_(1)

    def forward(self, g):
        return poptorch.identity_loss((self.inner(self.same(self.x)) * g).sum(), "none")


def gradients_eager(net, g, dtype, layout):
    net = copy.deepcopy(net).to(dtype).to(memory_format=layout)
    net(g.to(dtype).contiguous(memory_format=layout)).backward()
    return {name: p.grad for name, p in net.named_parameters() if p.grad is not None}


def check_modules(make, results):
    """The gradients of all parameters, and of the input, of some nets alike.

    Args:
        make: makes a net.
        results: the sizes of its results, and their mean gradient.
    """
    errors = Errors()
    for _ in range(MODULE_DRAWS):
        net, g = make(), values(*results)
        exact = gradients_eager(net, g, torch.float64, torch.contiguous_format)
        eager = [gradients_eager(net, g, torch.float32, layout) for layout in LAYOUTS.values()]
        ours = gradients_ours(net, g)
        for name, expected in exact.items():
            errors.add(name, [ours[name]], [[each[name]] for each in eager], [expected])
    errors.judge()


def gradients_ours(net, g):
    with poptorch.testing.keep_gradients():
        model = poptorch.trainingModel(copy.deepcopy(net), quiet_options())
        model(g)
    gradients = poptorch.testing.gradients(model)
    model.destroy()
    return gradients


NORMS = {
    "batch": lambda sizes: nn.BatchNorm2d(sizes[1]),
    "group": lambda sizes: nn.GroupNorm(4, sizes[1]),
    "instance": lambda sizes: nn.InstanceNorm2d(sizes[1], affine=True),
    "layer": lambda sizes: nn.LayerNorm(sizes[2:]),
    "rms": lambda sizes: nn.RMSNorm(sizes[2:], eps=EPS),
}


@pytest.mark.sampled
@pytest.mark.parametrize("norm", NORMS)
def test_gradients_of_norms(norm, seed):
    rng = np.random.default_rng(seed)
    sizes = [(48, 32, 12, 12), (16, 96, 10, 10), (4, 8, 60, 60)][rng.integers(3)]
    offsets = OFFSETS[rng.integers(len(OFFSETS))]
    check_modules(lambda: Weighted(NORMS[norm](sizes), values(sizes, offsets[0])),
                  (sizes, offsets[1]))


def inverted_residuals(widths):
    """The convolutions and norms of MobileNet without its activations, whose kinks would decide.

    The convolution of each channel by itself cancels what the norm before it scales and shifts:
    the gradients of that norm's weight and bias consist of rounding errors.
    """
    layers = []
    for before, after in zip(widths, widths[1:]):
        hidden = 4 * before
        layers += [nn.Conv2d(before, hidden, 1, bias=False), nn.BatchNorm2d(hidden),
                   nn.Conv2d(hidden, hidden, 3, 2, 1, groups=hidden, bias=False),
                   nn.BatchNorm2d(hidden), nn.Conv2d(hidden, after, 1, bias=False),
                   nn.BatchNorm2d(after)]
    return nn.Sequential(*layers)


@pytest.mark.sampled
def test_gradients_that_cancel():
    check_modules(lambda: Weighted(inverted_residuals([8, 16, 24]), torch.randn(48, 8, 32, 32)),
                  ((48, 24, 8, 8), 0))
