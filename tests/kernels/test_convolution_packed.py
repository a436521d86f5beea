"""Convolutions for inference with our own loops, with weights in the module's layout."""

import numpy as np
import pytest
import torch

import poptorch
from poptorch import _C
from tests import helpers

pytestmark = pytest.mark.usefixtures("loops")

# Image, weight, stride and padding. With 1x1 kernels sums of several parts, panels that are not
# full, more outputs than are packed at once, threads that share rows or columns of the result; too
# little for the loops. With few channels strips of lines over several images, lines longer than a
# strip, groups of pixels that are not full, kernels larger than the image.
CASES = [
    ((2, 600, 19, 7), (48, 1, 1), 1, (0, 0)),
    ((3, 64, 21, 20), (75, 1, 1), 2, (0, 0)),
    ((1, 256, 8, 8), (1060, 1, 1), 1, (0, 0)),
    ((5, 300, 16, 16), (33, 1, 1), 1, (0, 0)),
    ((3, 40, 9, 9), (72, 1, 1), 2, (0, 0)),
    ((9, 1, 7, 7), (32, 3, 3), 1, (1, 1)),
    ((2, 2, 31, 17), (75, 3, 5), 2, (1, 2)),
    ((1, 1, 5, 400), (16, 5, 5), 1, (2, 2)),
    ((3, 2, 3, 4), (33, 7, 7), 3, (3, 3)),
    ((4, 1, 28, 1), (9, 3, 1), 1, (0, 0)),
    ((2, 3, 21, 30), (64, 7, 7), 2, (3, 3)),
    ((3, 4, 9, 8), (24, 3, 3), 1, (1, 1)),
]


def whole_numbers(*sizes, most=3):
    """Numbers whose products and sums are exact."""
    return torch.randint(-most, most + 1, sizes).float()


def channels_last(image):
    return np.ascontiguousarray(image.movedim(1, -1).numpy())


def convolve(x, w, stride, activation="none", bias=None, residual=None, scale=None, threads=2,
             inplace=-1, padding=(0, 0), is_packed=False):
    stride = [stride] * 2 if isinstance(stride, int) else list(stride)
    geometry = {"stride": stride, "padding": list(padding), "dilation": [1, 1], "groups": 1}
    weight = w.numpy()
    if is_packed:
        attrs = geometry | {"input_size": list(x.shape)}
        weight = _C.evaluate("pack_convolution", [weight], attrs, threads=threads)[0]
    operands = [channels_last(x), weight, None if bias is None else bias.numpy(),
                None if residual is None else channels_last(residual),
                None if scale is None else scale.numpy()]
    attrs = geometry | {"weight_size": list(w.shape), "activation": activation}
    y = _C.evaluate("packed_convolution", operands, attrs, threads=threads, inplace=[inplace])[0]
    return torch.from_numpy(y).movedim(-1, 1)


def check_exact(expected, residual_at, activation, *operands, **settings):
    """``convolve(*operands, **settings)`` gives this, plus a residual, then the activation."""
    residual = None
    if residual_at is not None:
        residual = whole_numbers(*expected.shape)
        expected = expected + residual
    if activation == "relu":
        expected = expected.relu()
    for threads in (1, 2, 3):
        ours = convolve(*operands, activation=activation, residual=residual, threads=threads,
                        inplace=-1 if residual_at is None else residual_at, **settings)
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("residual_at", [None, -1, 3], ids=["none", "apart", "in_place"])
@pytest.mark.parametrize("with_scale", [False, True])
@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize(("x_size", "w_size", "stride", "padding"), CASES)
def test_exact(x_size, w_size, stride, padding, activation, with_scale, residual_at):
    """Scale, bias, residual and activation, in this order; the residual may be in its place."""
    outputs, *kernel = w_size
    x, w, bias = whole_numbers(*x_size), whole_numbers(outputs, x_size[1], *kernel), None
    expected = torch.nn.functional.conv2d(x, w, None, stride, padding)
    scale = None
    if with_scale:
        scale, bias = 2.0 ** torch.randint(-2, 3, (outputs,)), whole_numbers(outputs)
        expected = expected * scale[:, None, None] + bias[:, None, None]
    check_exact(expected, residual_at, activation, x, w, stride, bias=bias, scale=scale,
                padding=padding)


def test_bits_do_not_depend_on_threads():
    x, w, scale = torch.randn(2, 300, 14, 14), torch.randn(130, 300, 1, 1), torch.rand(130)
    whole = convolve(x, w, 1, "relu", scale, None, scale, threads=1)
    for threads in (2, 3, 7):
        assert torch.equal(convolve(x, w, 1, "relu", scale, None, scale, threads), whole)


def test_numbers_without_an_end_reach_their_pixel_behind_a_relu():
    x, w = torch.randn(2, 80, 12, 12), torch.rand(96, 80, 1, 1) + 0.5
    x[1, 3, 4, 4], x[0, 0, 0, 0] = torch.inf, torch.nan
    ours, expected = convolve(x, w, 1, "relu"), torch.nn.functional.conv2d(x, w).relu()
    assert torch.equal(ours.isnan(), expected.isnan())
    assert torch.equal(ours.isinf(), expected.isinf())


@pytest.mark.parametrize(("channels", "kernel"), [(64, 1), (1, 3)])
def test_networks_read_weights_in_place(channels, kernel):
    """No copy of the weight is made, and what the host writes to it counts after an upload."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(channels, 128, kernel, stride=2, bias=False), torch.nn.BatchNorm2d(128),
        torch.nn.ReLU(), torch.nn.Conv2d(128, 96, 1), torch.nn.Hardswish()).eval()
    net[1].running_var.uniform_(0.5, 2)
    x = torch.randn(4, channels, 28, 28)
    model = poptorch.inferenceModel(net, helpers.quiet_options())
    torch.testing.assert_close(model(x), net(x), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        net[0].weight.mul_(1.5)
    model.copyWeightsToDevice()
    torch.testing.assert_close(model(x), net(x), rtol=1e-4, atol=1e-5)
    packed = "pack_convolution" in model.ir("plan")
    assert not packed, model.ir("plan")


@pytest.mark.parametrize("residual_at", [None, -1, 3], ids=["none", "apart", "in_place"])
@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize("stride", [(1, 3), (3, 1), (2, 2)])
@pytest.mark.parametrize("outputs", [1, 4])
def test_images_of_one_channel(outputs, stride, activation, residual_at):
    """They have two memory orders; ATen and oneDNN choose different ones."""
    x, w = whole_numbers(2, 1, 4, 4), whole_numbers(outputs, 1, 3, 3)
    expected = torch.nn.functional.conv2d(x.contiguous(), w, stride=stride)
    check_exact(expected, residual_at, activation, x, w, stride, is_packed=True)
