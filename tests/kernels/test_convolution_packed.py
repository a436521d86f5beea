"""1x1 convolutions for inference by loops of our own, with weights as they lie in the module."""

import numpy as np
import pytest
import torch

import poptorch
from poptorch import _C
from tests import helpers

pytestmark = pytest.mark.usefixtures("loops")

# Image, outputs, stride. Sums of several parts, panels that are not full, more outputs than are
# packed at once, threads that share rows or columns of the result; too little for the loops.
CASES = [
    ((2, 600, 19, 7), 48, 1),
    ((3, 64, 21, 20), 75, 2),
    ((1, 256, 8, 8), 1060, 1),
    ((5, 300, 16, 16), 33, 1),
    ((3, 40, 9, 9), 72, 2),
]


def whole_numbers(*sizes, most=3):
    """Numbers whose products and sums are exact."""
    return torch.randint(-most, most + 1, sizes).float()


def channels_last(image):
    return np.ascontiguousarray(image.movedim(1, -1).numpy())


def convolve(x, w, stride, activation="none", bias=None, residual=None, scale=None, threads=2,
             inplace=-1):
    attrs = {"stride": [stride] * 2, "padding": [0, 0], "dilation": [1, 1], "groups": 1,
             "weight_size": list(w.shape), "activation": activation}
    operands = [channels_last(x), w.numpy(), None if bias is None else bias.numpy(),
                None if residual is None else channels_last(residual),
                None if scale is None else scale.numpy()]
    y = _C.evaluate("packed_convolution", operands, attrs, threads=threads, inplace=[inplace])[0]
    return torch.from_numpy(y).movedim(-1, 1)


@pytest.mark.parametrize("residual_at", [None, -1, 3], ids=["none", "apart", "in_place"])
@pytest.mark.parametrize("with_scale", [False, True])
@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize(("x_size", "outputs", "stride"), CASES)
def test_exact(x_size, outputs, stride, activation, with_scale, residual_at):
    """Scale, bias, residual and activation, in this order; the residual may be in its place."""
    x, w, bias = whole_numbers(*x_size), whole_numbers(outputs, x_size[1], 1, 1), None
    expected = torch.nn.functional.conv2d(x, w, None, stride)
    scale = residual = None
    if with_scale:
        scale, bias = 2.0 ** torch.randint(-2, 3, (outputs,)), whole_numbers(outputs)
        expected = expected * scale[:, None, None] + bias[:, None, None]
    if residual_at is not None:
        residual = whole_numbers(*expected.shape)
        expected = expected + residual
    if activation == "relu":
        expected = expected.relu()
    for threads in (1, 2, 3):
        ours = convolve(x, w, stride, activation, bias, residual, scale, threads,
                        -1 if residual_at is None else residual_at)
        assert torch.equal(ours, expected)


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


def test_networks_read_weights_in_place():
    """No copy of the weight is made, and what the host writes to it counts after an upload."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(64, 128, 1, stride=2, bias=False), torch.nn.BatchNorm2d(128),
        torch.nn.ReLU(), torch.nn.Conv2d(128, 96, 1), torch.nn.Hardswish()).eval()
    net[1].running_var.uniform_(0.5, 2)
    x = torch.randn(4, 64, 28, 28)
    model = poptorch.inferenceModel(net, helpers.quiet_options())
    torch.testing.assert_close(model(x), net(x), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        net[0].weight.mul_(1.5)
    model.copyWeightsToDevice()
    torch.testing.assert_close(model(x), net(x), rtol=1e-4, atol=1e-5)
    packed = "pack_convolution" in model.ir("plan")
    assert not packed, model.ir("plan")
