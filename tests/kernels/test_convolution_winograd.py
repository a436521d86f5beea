"""3x3 convolutions for inference by Winograd's F(2x2, 3x3)."""

import pytest
import torch
from torch.nn import functional as F

import poptorch
from tests import helpers
from tests.kernels import test_convolution_packed
from tests.kernels.test_convolution_packed import whole_numbers

# Image, outputs and padding: sides of the result that are odd or one; images that share a block,
# and more patches than it holds; panels of outputs that are not full; sums of several parts, of
# which the last is shorter; paddings that patches lie in with no pixel; weights that are packed
# panel by panel, in one block and in several.
CASES = [
    ((5, 16, 8, 8), 16, (1, 1)),
    ((13, 16, 5, 7), 48, (0, 0)),
    ((8, 80, 9, 6), 32, (1, 0)),
    ((70, 48, 3, 3), 64, (0, 0)),
    ((50, 48, 1, 2), 80, (1, 2)),
    ((1, 48, 33, 31), 16, (2, 3)),
    ((11, 144, 7, 5), 160, (1, 1)),
    ((2, 144, 30, 29), 176, (1, 1)),
]


def convolve(x, w, padding, activation="none", bias=None, threads=2):
    """By weights that are packed."""
    return test_convolution_packed.convolve(x, w, 1, activation, bias, threads=threads,
                                            padding=padding, is_packed=True)


@pytest.mark.sampled
@pytest.mark.parametrize("residual_at", [None, -1, 3], ids=["none", "apart", "in_place"])
@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize(("x_size", "outputs", "padding"), CASES)
def test_exact(isa, x_size, outputs, padding, activation, residual_at):
    """Bias, residual and activation, in this order; the residual may be in its place."""
    x, bias = whole_numbers(*x_size), whole_numbers(outputs)
    w = 4 * whole_numbers(outputs, x_size[1], 3, 3)  # that a half of a half stays whole
    expected = F.conv2d(x, w, bias, 1, padding)
    test_convolution_packed.check_exact(expected, residual_at, activation, x, w, 1, bias=bias,
                                        padding=padding, is_packed=True)


def results_for_random_numbers():
    """Of all cases, the same numbers in every process."""
    generator = torch.Generator().manual_seed(5)
    results = []
    for x_size, outputs, padding in CASES:
        x = torch.randn(x_size, generator=generator)
        w = torch.randn(outputs, x_size[1], 3, 3, generator=generator)
        results.append(convolve(x, w, padding))
    return results


@pytest.mark.sampled
def test_cases_are_computed_in_this_way(tmp_path):
    file = tmp_path / "without.pt"
    code = f"""import torch
from tests.kernels.test_convolution_winograd import results_for_random_numbers
torch.save(results_for_random_numbers(), {str(file)!r})"""
    helpers.run_python(code, POPTORCH_OFF="winograd")
    for ours, without in zip(results_for_random_numbers(), torch.load(file), strict=True):
        assert not torch.equal(ours, without)
        torch.testing.assert_close(ours, without, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", ["silu", "hardswish"])
def test_other_activations(activation):
    x, w = torch.randn(4, 16, 9, 9), torch.randn(32, 16, 3, 3)
    expected = getattr(F, activation)(F.conv2d(x, w, padding=1))
    torch.testing.assert_close(convolve(x, w, (1, 1), activation), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels", [16, 80, 528])
def test_rounds_no_more_than_eager(isa, channels):
    x, w = torch.randn(4, channels, 12, 12), torch.randn(32, channels, 3, 3)
    ours, eager = convolve(x, w, (1, 1)), F.conv2d(x, w, padding=1)
    helpers.check_narrow(ours, [eager], F.conv2d(x.double(), w.double(), padding=1))


def test_bits_do_not_depend_on_threads():
    x, w, bias = torch.randn(3, 80, 14, 13), torch.randn(80, 80, 3, 3), torch.randn(80)
    whole = convolve(x, w, (1, 1), "relu", bias, threads=1)
    for threads in (2, 3, 7):
        assert torch.equal(convolve(x, w, (1, 1), "relu", bias, threads=threads), whole)


@pytest.mark.parametrize("activation", ["none", "relu"])
def test_numbers_without_an_end_reach_the_pixels_that_see_them(isa, activation):
    x, w = torch.randn(2, 32, 12, 11), torch.rand(48, 32, 3, 3) + 0.5
    x[1, 3, 4, 4], x[0, 0, 0, 0], x[0, 5, 7, 2], x[1, 6, 11, 10] = (
        torch.inf, torch.nan, -torch.inf, torch.inf)
    ours, expected = convolve(x, w, (1, 1), activation), F.conv2d(x, w, padding=1)
    if activation == "relu":
        expected = expected.relu()
    torch.testing.assert_close(ours, expected, equal_nan=True, rtol=1e-4, atol=1e-4)


def test_large_numbers_that_only_the_transformation_would_overflow(isa):
    x = torch.full((8, 16, 6, 6), 3e38) * torch.randint(0, 2, (8, 16, 6, 6)).mul(2).sub(1)
    w = torch.randn(16, 16, 3, 3) * 1e-10
    torch.testing.assert_close(convolve(x, w, (1, 1)), F.conv2d(x, w, padding=1), rtol=1e-4,
                               atol=1e24)


def test_networks():
    """What the host writes to a weight counts after an upload; 16-bit images are upcast."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(32, 64, 3, padding=1, bias=False), torch.nn.BatchNorm2d(64),
        torch.nn.ReLU(), torch.nn.Conv2d(64, 48, 3)).eval()
    net[1].running_var.uniform_(0.5, 2)
    x = torch.randn(4, 32, 15, 14)
    model = poptorch.inferenceModel(net, helpers.quiet_options())
    torch.testing.assert_close(model(x), net(x), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        net[0].weight.mul_(1.5)
    model.copyWeightsToDevice()
    torch.testing.assert_close(model(x), net(x), rtol=1e-4, atol=1e-5)
    half = poptorch.inferenceModel(net.half(), helpers.quiet_options())
    wide = net.float()(x.half().float())
    torch.testing.assert_close(half(x.half()).float(), wide, rtol=5e-3, atol=5e-3)
