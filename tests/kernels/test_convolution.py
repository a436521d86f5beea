"""Convolutions in other memory layouts than the samples have, and a fault of torch's."""

import copy
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import poptorch
from poptorch import _C
from tests import helpers


def geometry(dims=2, stride=1, padding=0, dilation=1, transposed=False, groups=1):
    """Attributes of the rows."""
    return {
        "stride": [stride] * dims,
        "padding": [padding] * dims,
        "dilation": [dilation] * dims,
        "transposed": transposed,
        "output_padding": [0] * dims,
        "groups": groups,
    }


def backward_attrs(attrs, channels, mask=(True, True, True)):
    return {"bias_sizes": [channels], **attrs, "output_mask": list(mask)}


def channels_last(array):
    """The same numbers, channels last in memory."""
    last = np.ascontiguousarray(np.moveaxis(array, 1, -1))
    return np.moveaxis(last, -1, 1)


CASES = [
    (geometry(padding=1), (2, 8, 9, 7), (4, 8, 3, 3)),
    (geometry(stride=2, padding=1, groups=2), (2, 8, 9, 7), (6, 4, 3, 3)),
    (geometry(padding=2, dilation=2, groups=8), (2, 8, 9, 7), (8, 1, 3, 3)),
    (geometry(stride=2, transposed=True), (2, 8, 5, 4), (8, 3, 2, 2)),
    (geometry(stride=2, padding=1), (3, 16, 34, 38), (24, 16, 3, 3)),  # strips of 323 pixels
    (geometry(padding=1), (5, 1, 9, 17), (32, 1, 3, 3)),
    (geometry(stride=2, padding=2), (3, 2, 9, 7), (20, 2, 5, 5)),
    (geometry(), (2, 16, 6, 6), (8, 16, 1, 1)),
    (geometry(stride=2), (2, 3, 8, 8), (8, 3, 1, 1)),
]


@pytest.mark.parametrize(("attrs", "x_sizes", "w_sizes"), CASES)
@pytest.mark.parametrize("layouts", [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 1)])
def test_channels_last_operands(attrs, x_sizes, w_sizes, layouts):
    x, w = torch.randn(x_sizes), torch.randn(w_sizes)
    y = torch.ops.aten.convolution(x, w, None, *attrs.values())
    g = torch.randn(y.shape)
    expected = torch.ops.aten.convolution_backward(
        g, x, w, [g.shape[1]], *attrs.values(), [True, True, True]
    )
    arrays = [
        channels_last(t.numpy()) if last else t.numpy()
        for t, last in zip((x, w, g), layouts, strict=True)
    ]
    ours = _C.evaluate("convolution", [arrays[0], arrays[1], None], attrs)
    ours += _C.evaluate(
        "convolution_backward", [arrays[2], *arrays[:2]], backward_attrs(attrs, g.shape[1])
    )
    for result, reference in zip(ours, (y, *expected), strict=True):
        torch.testing.assert_close(torch.from_numpy(result), reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mask", [(True, False, False), (False, True, False), (False, True, True)])
def test_output_mask(mask):
    attrs = geometry(padding=1)
    x, w = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3)
    g = torch.randn(2, 4, 5, 5)
    arrays = [t.numpy() for t in (g, x, w)]
    ours = _C.evaluate("convolution_backward", arrays, backward_attrs(attrs, 4, mask))
    expected = torch.ops.aten.convolution_backward(g, x, w, [4], *attrs.values(), list(mask))
    for result, reference, wanted in zip(ours, expected, mask, strict=True):
        if wanted:
            torch.testing.assert_close(torch.from_numpy(result), reference, rtol=1e-4, atol=1e-4)
        else:
            assert result.size == 0


@pytest.mark.parametrize(("groups", "transposed"), [(1, False), (8, False), (1, True)])
@pytest.mark.parametrize("is_last", [False, True])
def test_bias_gradient_of_many_pixels(groups, transposed, is_last):
    """oneDNN adds one pixel to the next, which is up to 1e-3 of the sum off here."""
    attrs = geometry(padding=1, groups=groups, transposed=transposed)
    x, w = torch.rand(4, 8, 256, 256), torch.rand(8, 8 // groups, 3, 3)
    g = 0.1 + 0.001 * torch.rand_like(x)
    arrays = [channels_last(t.numpy()) if is_last else t.numpy() for t in (g, x, w)]
    db = _C.evaluate("convolution_backward", arrays, backward_attrs(attrs, 8))[2]
    expected = g.double().sum((0, 2, 3)).float()
    torch.testing.assert_close(torch.from_numpy(db), expected, rtol=5e-7, atol=0)


@pytest.mark.parametrize(("dtype", "rounding"), [("f32", 5e-7), ("f16", 2**-11), ("bf16", 2**-8)])
@pytest.mark.parametrize("layout", ["rows", "last", "permuted"])
@pytest.mark.parametrize(("channels", "size"), [
    (3, (2, 40, 70)), (70, (3, 20, 30)), (64, (1, 1, 1)), (130, (2, 33, 40))])
def test_bias_gradient_is_rounded_once(dtype, rounding, layout, channels, size):
    """Of each number of threads the same bits."""
    images, *pixels = size
    narrow = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    g = (0.1 + torch.rand(images, channels, *pixels)).to(narrow)
    order = {"rows": (0, 1, 2, 3), "last": (0, 2, 3, 1), "permuted": (3, 1, 0, 2)}[layout]
    held = g.permute(order).contiguous().permute([order.index(dim) for dim in range(4)])
    tensors = [held, torch.zeros(images, 2, *pixels), torch.zeros(channels, 2, 1, 1)]
    arrays = [t.numpy() if dtype == "f32" else
              t.to(narrow).view(torch.int16).numpy().view(np.uint16 if dtype == "bf16" else
                                                          np.float16) for t in tensors]
    if dtype == "bf16":
        arrays = [(array, "bf16") for array in arrays]
    attrs = backward_attrs(geometry(), channels, (False, False, True))
    one, two = (_C.evaluate("convolution_backward", arrays, attrs, threads=threads)[2]
                for threads in (1, 2))
    np.testing.assert_array_equal(one, two)
    found = torch.from_numpy(one.view(np.int16)).view(narrow) if dtype != "f32" else \
        torch.from_numpy(one)
    expected = g.double().sum((0, 2, 3))
    torch.testing.assert_close(found.double(), expected, rtol=rounding, atol=0)


@pytest.mark.sampled
def test_strided_pointwise_weight_gradient_of_few_channels():
    """torch 2.13 corrupts the heap here when channels are last; so must not we."""
    code = """
import numpy as np
import torch
from poptorch import _C
attrs = dict(bias_sizes=[8], stride=[2, 2], padding=[0, 0], dilation=[1, 1], transposed=False,
             output_padding=[0, 0], groups=1, output_mask=[True, True, True])
for channels in (1, 2, 3, 5, 7):
    x = torch.randn(2, channels, 112, 112)
    w, g = torch.randn(8, channels, 1, 1), torch.randn(2, 8, 56, 56)
    last = [t.contiguous(memory_format=torch.channels_last).numpy() for t in (g, x, w)]
    dx, dw, db = _C.evaluate("convolution_backward", last, attrs)
    expected = torch.einsum("nohw,nihw->oi", g, x[:, :, ::2, ::2])
    error = (torch.from_numpy(dw)[:, :, 0, 0] - expected).abs().max()
    assert error < 1e-2, (channels, error)
print("done")
"""
    isa = {"ONEDNN_MAX_CPU_ISA": "AVX2"}  # where the fault is
    out = helpers.run_python(code, MALLOC_CHECK_="3", MALLOC_PERTURB_="77", **isa)
    assert "done" in out


def test_steady_state_takes_no_memory_from_torch():
    attrs = geometry(padding=1)
    arrays = [torch.randn(s).numpy() for s in ((2, 4, 9, 9), (2, 3, 9, 9), (4, 3, 3, 3))]
    counts = []
    for _ in range(3):
        before = _C.aten_allocations()
        _C.evaluate("convolution_backward", arrays, backward_attrs(attrs, 4), threads=2)
        counts.append(_C.aten_allocations() - before)
    assert counts[1:] == [0, 0]


@pytest.mark.skipif("amx_bf16" not in Path("/proc/cpuinfo").read_text().split()
                    or "POPTORCH_ISA" in os.environ, reason="no unit for bfloat16 products")
def test_what_only_odd_numbers_need_is_not_prepared():
    """A call of ATen that stands by is not made when the kernel is prepared."""
    attrs = geometry(padding=1) | {"layout": "channels_last"}
    x, w, g = (torch.randn(sizes).numpy() for sizes in ((3, 11, 34, 64), (64, 3, 3, 64),
                                                        (3, 11, 34, 64)))
    before = _C.aten_allocations()
    _C.evaluate("convolution", [x, w, None], attrs, threads=2)
    _C.evaluate("convolution_backward", [g, x, w],
                backward_attrs(attrs, 64, (True, False, False)), threads=2)
    assert _C.aten_allocations() == before


@pytest.mark.parametrize("form", ["packed", "unpacked", "scaled"])
@pytest.mark.parametrize("inplace", [-1, 3])
@pytest.mark.parametrize("where", ["image", "weight"])
@pytest.mark.parametrize("large", [2e38, float("inf")])
def test_packed_convolution_of_numbers_without_parts(where, large, inplace, form):
    """A residual whose memory the result takes is added once, whatever the others are."""
    attrs = {key: geometry(padding=1)[key] for key in ("stride", "padding", "dilation", "groups")}
    x, w = torch.randn(3, 512, 4, 6) * 1e-2, torch.randn(192, 512, 3, 3) * 1e-2
    bias, residual = torch.randn(192), torch.randn(3, 4, 6, 192)
    number = x[1, 7] if where == "image" else w[150, 3]  # of the second block of weights
    number[1, 1] = large
    scale = torch.rand(192) * 0.1 + 0.1 if form == "scaled" else torch.ones(192)
    expected = torch.nn.functional.conv2d(x.double(), w.double(), padding=1).movedim(1, -1)
    expected = (expected * scale + bias + residual).relu().float()
    weight = w.numpy()
    if form == "packed":
        weight = _C.evaluate("pack_convolution", [weight], attrs | {"input_size": list(x.shape)})[0]
    image = np.ascontiguousarray(x.movedim(1, -1).numpy())
    operands = [image, weight, bias.numpy(), residual.numpy()]
    operands.append(scale.numpy() if form == "scaled" else None)
    ours = _C.evaluate("packed_convolution", operands,
                       attrs | {"weight_size": list(w.shape), "activation": "relu"},
                       inplace=[inplace])[0]
    torch.testing.assert_close(torch.from_numpy(ours), expected, rtol=1e-3, atol=1e-3,
                               equal_nan=True)


@pytest.mark.parametrize("inputs, outputs, size, stride", [
    (3, 8, 3, 1), (64, 128, 3, 1), (64, 64, 1, 1), (3, 64, 7, 2), (64, 64, 3, 2)])
def test_odd_numbers_reach_the_result_behind_a_relu(inputs, outputs, size, stride):
    """In inference the activation is part of the convolution, whichever kernel computes it."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2),
        torch.nn.ReLU()).eval()
    x = torch.randn(2, inputs, 28, 28)
    x[0, 1, 3, 5] = math.nan
    y = poptorch.inferenceModel(net, helpers.quiet_options())(x)
    expected = net(x)
    assert expected.isnan().any() and torch.equal(y.isnan(), expected.isnan())
    torch.testing.assert_close(y, expected, equal_nan=True, rtol=1e-4, atol=1e-4)


class Summed(torch.nn.Module):
    """The sum as the loss."""

    def forward(self, y):
        return poptorch.identity_loss(y.sum(), "none")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", [torch.nn.Identity, torch.nn.ReLU, torch.nn.SiLU])
def test_windows_that_see_padding_alone(dtype, activation):
    """The result is the bias; oneDNN of torch 2.13 ends the process when channels are last."""
    conv = torch.nn.Conv2d(2, 4, (4, 1), stride=(3, 2), padding=(0, 3), dilation=(1, 2), groups=2)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 1), conv, activation()).to(dtype)
    x = torch.randn(2, 3, 7, 1, dtype=dtype)
    expected = net[2](conv.bias.detach())[None, :, None, None].expand(2, 4, 2, 4)
    odd = copy.deepcopy(net).eval()
    torch.nn.init.constant_(odd[1].weight[1], math.nan)
    y = poptorch.inferenceModel(odd, helpers.quiet_options())(x)
    assert y.isnan().all(dim=3).all(dim=2).all(dim=0).tolist() == [False, True, False, False]
    y = poptorch.inferenceModel(net.eval(), helpers.quiet_options())(x)
    torch.testing.assert_close(y, expected)
    net.append(Summed())
    before = [parameter.detach().clone() for parameter in net.parameters()]
    net[2](conv.bias).sum().backward()
    sgd = poptorch.optim.SGD(net.parameters(), lr=0.25)
    poptorch.trainingModel(net, helpers.quiet_options(), optimizer=sgd)(x)
    steps = [old - new.detach() for old, new in zip(before, net.parameters())]
    assert not any(step.any() for step in steps[:3])
    torch.testing.assert_close(steps[3], 16 * 0.25 * conv.bias.grad, rtol=0.02, atol=0.02)


def test_batch_norm_of_weights_that_are_read_where_they_lie():
    """Wherever the scale goes: the same numbers, whatever the threads, also after an upload."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(64, 128, 3, padding=1, bias=False), torch.nn.BatchNorm2d(128),
        torch.nn.ReLU(), torch.nn.Conv2d(128, 256, 1), torch.nn.BatchNorm2d(256)).eval()
    for norm in (net[1], net[4]):
        torch.nn.init.uniform_(norm.weight, 0.5, 2)
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 64, 28, 28)
    model, threads = poptorch.inferenceModel(net, helpers.quiet_options()), torch.get_num_threads()
    for _ in range(2):
        y = model(x)
        torch.testing.assert_close(y, net(x), rtol=1e-4, atol=1e-4)
        try:
            torch.set_num_threads(3 - min(threads, 2))
            assert torch.equal(model(x), y)
        finally:
            torch.set_num_threads(threads)
        with torch.no_grad():
            net[0].weight.mul_(1.5)
            net[4].weight.neg_()
        model.copyWeightsToDevice()
