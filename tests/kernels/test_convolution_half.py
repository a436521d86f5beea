"""Convolutions of images in half precision: wide within, rounded once."""

import copy
import itertools
import random
from functools import partial

import pytest
import torch

import poptorch
from tests import helpers


class Block(torch.nn.Module):
    """A convolution with batch norm; then, with a residual, a relu."""

    def __init__(self, channels, size, stride, variance):
        super().__init__()
        self.residual = stride == 1
        self.convolution = torch.nn.Conv2d(
            channels, channels, size, stride, size // 2, bias=False)
        self.norm = torch.nn.BatchNorm2d(channels)
        with torch.no_grad():
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(variance, 2 * variance)
            self.norm.weight.uniform_(0.5, 1.5)
            self.norm.bias.normal_()

    def forward(self, x):
        y = self.norm(self.convolution(x))
        return torch.relu(y + x if self.residual else y)


GEOMETRIES = pytest.mark.parametrize("channels, size, stride", [
    (64, 3, 1), (8, 3, 2), (64, 1, 1), (3, 5, 1)])


@pytest.mark.parametrize("dtype, step", [(torch.float16, 2.0**-11), (torch.bfloat16, 2.0**-8)])
@GEOMETRIES
def test_inference(channels, size, stride, dtype, step):
    net = Block(channels, size, stride, variance=0.5).eval().to(dtype)
    x = torch.randn(2, channels, 28, 28).to(dtype)
    wide = copy.deepcopy(net).double()
    y = poptorch.inferenceModel(net, helpers.quiet_options())(x)
    expected = wide(x.double())
    # bf16 rounds after each op: products, batch norm, addition.
    scale = expected.abs().max() * (1 if dtype == torch.float16 else 4)
    assert y.dtype == dtype
    assert (y.double() - expected).abs().max() <= step * scale * 1.01


@GEOMETRIES
def test_weights_with_batch_norm_are_not_rounded_to_f16(channels, size, stride):
    """Divided by the deviation they are below the numbers that f16 has."""
    net = Block(channels, size, stride, variance=1e4).eval()
    net.residual = False
    with torch.no_grad():
        net.convolution.weight.mul_(1e-3)
        net.norm.bias.zero_()
        net.norm.running_mean.zero_()
    net = net.half()
    x = 1e3 * torch.randn(2, channels, 28, 28).half()
    expected = copy.deepcopy(net).double()(x.double())
    y = poptorch.inferenceModel(net, helpers.quiet_options())(x)
    assert (y.double() - expected).abs().max() <= 2.0**-10 * expected.abs().max()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@GEOMETRIES
def test_gradients(channels, size, stride, dtype):
    """Of one step: what SGD with a rate of 1 takes off the weights.

    Numbers near 0 may pass a relu in one precision and not in the other.
    """
    class Trained(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Block(channels, size, stride, variance=0.5)

        def forward(self, x, target):
            y = self.net(x)
            return y, poptorch.identity_loss((y * target).sum(), reduction="none")

    module = Trained().to(dtype)
    wide = copy.deepcopy(module).double()
    x = torch.randn(4, channels, 14, 14).to(dtype)
    target = torch.randn_like(module.net(x))
    wide(x.double(), target.double())[1].backward()
    before = module.net.convolution.weight.detach().double()
    model = poptorch.trainingModel(
        module, helpers.quiet_options(), torch.optim.SGD(module.parameters(), lr=1.0))
    model(x, target)
    model.copyWeightsToHost()
    taken = before - module.net.convolution.weight.detach().double()
    gradient = wide.net.convolution.weight.grad
    assert (taken - gradient).norm() <= 0.2 * gradient.norm()


class Permuted(torch.nn.Module):
    """A convolution whose result, and so its gradient, is seen with its dimensions permuted."""

    def __init__(self, convolution, order):
        super().__init__()
        self.convolution, self.order = convolution, order

    def forward(self, x, weight):
        y = self.convolution(x).permute(self.order)
        return y, poptorch.identity_loss((y * weight).sum(), reduction="none")


@pytest.mark.parametrize("dtype, step", [(torch.float16, 2.0**-11), (torch.bfloat16, 2.0**-8),
                                         (torch.float32, 1e-6)])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_a_permuted_result(dims, dtype, step):
    """The gradient that comes back has strides that are neither row-major nor channels-last."""
    layer = [torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d][dims - 1]
    orders = list(itertools.permutations(range(dims + 2)))
    for order in [orders[i] for i in torch.randperm(len(orders))[:6]]:
        net = Permuted(layer(5, 6, 3, padding=1), order).to(dtype)
        x = torch.randn(2, 5, *(4, 3, 5)[:dims]).to(dtype)
        weight = torch.randn(2, 6, *(4, 3, 5)[:dims]).permute(order).to(dtype)
        wide = copy.deepcopy(net).double()
        wide(x.double(), weight.double())[1].backward()
        with poptorch.testing.keep_gradients():
            model = poptorch.trainingModel(
                net, helpers.quiet_options(), torch.optim.SGD(net.parameters(), lr=0.0))
            model(x, weight)
            ours = poptorch.testing.gradients(model)
        model.destroy()
        for name, parameter in wide.named_parameters():
            error = (ours[name].double() - parameter.grad).abs().max()
            assert error <= 4 * step * parameter.grad.abs().max(), (order, name)


@pytest.mark.parametrize("layer, norm, sizes", [
    (torch.nn.Conv1d(8, 16, 1), torch.nn.BatchNorm1d(16), (4, 8, 1)),
    (torch.nn.Conv1d(8, 16, 1), torch.nn.BatchNorm1d(16), (4, 8, 50)),
    (torch.nn.Conv2d(8, 16, 1), torch.nn.BatchNorm2d(16), (4, 8, 1, 1)),
    (torch.nn.Conv3d(8, 16, 1, stride=2), torch.nn.BatchNorm3d(16), (2, 8, 3, 3, 3)),
    (torch.nn.Conv1d(8, 16, 3), torch.nn.BatchNorm1d(16), (4, 8, 20)),
    (torch.nn.Conv1d(16, 16, 3, groups=16), torch.nn.BatchNorm1d(16), (4, 16, 20)),
], ids=["one pixel", "pixels", "image", "volume", "wide", "depthwise"])
def test_batch_norm_in_weights_of_any_kind_of_convolution(layer, norm, sizes):
    """The folded weights are f32 and the images f16: no kernel may read the weights as f16."""
    net = torch.nn.Sequential(layer, norm).half().eval()
    x = torch.randn(sizes).half()
    expected = copy.deepcopy(net).double()(x.double())
    y = poptorch.inferenceModel(net, helpers.quiet_options())(x)
    assert y.dtype == torch.float16
    assert (y.double() - expected).abs().max() <= 2.0**-10 * expected.abs().max()


def drawn_convolution(rng, dims):
    """Operands in bfloat16 and settings: small images, some of them smaller than the kernel."""
    groups = rng.choice((1, 1, 2, 3, 12))
    inputs, outputs = groups * rng.choice((1, 2, 8)), groups * rng.choice((1, 2, 4))
    is_transposed = rng.random() < 0.3
    kernel = [rng.choice((1, 2, 3, 5)) for _ in range(dims)]
    weight = (inputs, outputs // groups) if is_transposed else (outputs, inputs // groups)
    image = [rng.choice((1, 1, 2, 5, 8)) for _ in range(dims)]
    name = f"conv_transpose{dims}d" if is_transposed else f"conv{dims}d"
    settings = {"stride": rng.choice((1, 2)), "padding": rng.choice((0, 1, 2)), "groups": groups}
    return (getattr(torch.nn.functional, name), torch.randn(2, inputs, *image).bfloat16(),
            torch.randn(*weight, *kernel).bfloat16(), settings)


class Weighted(torch.nn.Module):
    """The sum of a function of two parameters, each result times a number of its own."""

    def __init__(self, function, x, w):
        super().__init__()
        self.function, self.x, self.w = function, torch.nn.Parameter(x), torch.nn.Parameter(w)

    def forward(self, by):
        y = self.function(self.x, self.w)
        return y, poptorch.identity_loss((y.float() * by).sum(), "none")


@pytest.mark.sampled
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_bfloat16_of_all_geometries(dims):
    """oneDNN's results of some are wrong on CPUs with a unit for bfloat16, so eager's are, too."""
    rng, compared = random.Random(torch.seed()), 0
    while compared < 40:
        function, x, w, settings = drawn_convolution(rng, dims)
        exact = Weighted(partial(function, **settings), x.double(), w.double())
        try:
            expected = exact.function(exact.x, exact.w)
        except RuntimeError:  # the kernel does not fit
            continue
        if expected.numel() == 0:
            continue
        compared += 1
        by = torch.randn(expected.shape)
        exact(by.double())[1].backward()
        net = Weighted(partial(function, **settings), x, w)
        with poptorch.testing.keep_gradients():
            model = poptorch.trainingModel(net, helpers.quiet_options())
            y, _ = model(by)
            found = {"y": y, **poptorch.testing.gradients(model)}
        for name, wanted in (("y", expected), ("x", exact.x.grad), ("w", exact.w.grad)):
            limit = 0.02 * max(1.0, wanted.abs().max().item())
            error = (found[name].double() - wanted).abs().max().item()
            assert error < limit, (name, function.__name__, x.shape, w.shape, settings)
