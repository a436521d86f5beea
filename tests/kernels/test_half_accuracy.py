"""Products and convolutions of 16-bit numbers: nearly all results are the exact ones, rounded.

A result is within one unit in the last place of the exact one, or within 1e-6 of the sum of the
magnitudes that are added up; and at least 99.5 % of them are the numbers next to the exact ones.
"""

import copy

import pytest
import torch

import poptorch
from tests.helpers import quiet_options
from tests.ops.sample import TORCH, Sample, channels_last, evaluate, randn

SIXTEEN_BIT = pytest.mark.parametrize("dtype", ["f16", "bf16"])
SHARE = 0.995


def check(got, exact, magnitudes, share=SHARE):
    """The contract for one result; ``share`` of its numbers are the ones next to the exact ones,
    with five sigma for few numbers."""
    got, exact = got.detach(), exact.detach()
    rounded = exact.to(got.dtype)
    assert rounded.isfinite().all(), "the exact result has numbers that the type has not"
    bits = 11 if got.dtype is torch.float16 else 8
    least = 2.0**-14 if got.dtype is torch.float16 else 2.0**-126
    unit = 2.0 ** (exact.abs().clamp(min=least).log2().floor() - bits + 1)
    allowed = torch.maximum(unit, 1e-6 * magnitudes.detach())
    error = (got.double() - exact).abs()
    assert (error <= allowed).all(), (error / allowed).max().item()
    right = (got == rounded).double().mean().item()
    assert right >= share - 5 * (SHARE * (1 - SHARE) / got.numel()) ** 0.5, right


def check_all(sample, dtype, reference, threads=1):
    """All results of a sample against ``reference(*operands)`` in float64."""
    operands = sample.operands(dtype)
    wide = [x.double() for x in operands]
    exact = reference(*wide)
    magnitudes = reference(*[x.abs() for x in wide])
    results = evaluate(sample, operands, dtype, threads=threads)
    for got, right, most in zip(results, exact, magnitudes, strict=True):
        check(got, right, most)


def one(function):
    return lambda *operands: (function(*operands),)


# m, k, n: small ones, more than one block, few rows or columns, deep sums that are cut.
SIZES = [(5, 7, 9), (64, 64, 64), (300, 128, 257), (16, 700, 513), (1, 1000, 300), (300, 1000, 1),
         (40, 5000, 33), (130, 4096, 130), (530, 70, 601)]


@pytest.mark.sampled
@SIXTEEN_BIT
@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products(size, turned, dtype):
    m, k, n = size

    def operands():
        a = randn(k, m).t() if turned[0] else randn(m, k)
        return [a, randn(n, k).t() if turned[1] else randn(k, n)]

    for threads in (1, 2):
        check_all(Sample("matmul", operands), dtype, one(torch.matmul), threads)


@SIXTEEN_BIT
@pytest.mark.parametrize("size", SIZES[:5] + SIZES[6:7], ids=str)
def test_sums_and_batches(size, dtype):
    m, k, n = size
    added = Sample("addmm", lambda: [randn(n), randn(m, k), randn(n, k).t()])
    check_all(added, dtype, one(torch.addmm))
    batches = Sample("baddbmm", lambda: [randn(3, m, n), randn(3, m, k), randn(3, k, n)])
    check_all(batches, dtype, one(torch.baddbmm))


@SIXTEEN_BIT
def test_products_by_the_instruction_sets(isa, dtype):
    for m, k, n in SIZES[:5]:
        check_all(Sample("matmul", lambda: [randn(m, k), randn(k, n)]), dtype, one(torch.matmul))


@SIXTEEN_BIT
def test_products_through_whole_tensors(dtype, monkeypatch):
    monkeypatch.setenv("POPTORCH_OFF", "blocked_upcast,bf16_unit")
    for m, k, n in SIZES[1:6]:
        check_all(Sample("matmul", lambda: [randn(m, k), randn(k, n)]), dtype, one(torch.matmul))


@SIXTEEN_BIT
def test_cancelled_sums(dtype):
    """Nothing is left of large terms but the small ones."""
    def operands():
        a, b = randn(60, 400), randn(400, 50)
        return [torch.cat([a, a, randn(60, 3)], 1), torch.cat([b, -b, randn(3, 50)])]

    sample = Sample("matmul", operands)
    operands = sample.operands(dtype)
    wide = [x.double() for x in operands]
    (got,) = evaluate(sample, operands, dtype)
    check(got, torch.matmul(*wide), torch.matmul(*[x.abs() for x in wide]), share=0.9)


def geometry(stride=1, padding=0, dilation=1, transposed=False, groups=1, dims=2):
    return {"stride": [stride] * dims, "padding": [padding] * dims, "dilation": [dilation] * dims,
            "transposed": transposed, "output_padding": [0] * dims, "groups": groups}


# Images, weights, geometry: each form that computes some.
CONVOLUTIONS = {
    "winograd": ((2, 64, 20, 20), (64, 64, 3, 3), geometry(padding=1)),
    "few channels": ((2, 3, 30, 30), (16, 3, 7, 7), geometry(2, 3)),
    "pointwise": ((2, 64, 14, 14), (96, 64, 1, 1), geometry()),
    "pointwise strided": ((2, 64, 14, 14), (96, 64, 1, 1), geometry(2)),
    "depthwise": ((2, 48, 16, 16), (48, 1, 3, 3), geometry(padding=1, groups=48)),
    "groups": ((2, 24, 13, 13), (36, 8, 3, 3), geometry(padding=1, groups=3)),
    "strided": ((2, 32, 15, 15), (40, 32, 3, 3), geometry(2, 1)),
    "dilated": ((2, 16, 17, 17), (16, 16, 3, 3), geometry(1, 2, 2)),
    "line": ((2, 16, 60), (24, 16, 5), geometry(1, 2, dims=1)),
    "volume": ((1, 8, 7, 7, 7), (8, 8, 3, 3, 3), geometry(1, 1, dims=3)),
    "transposed": ((2, 16, 9, 9), (16, 12, 4, 4), geometry(2, 1, transposed=True)),
}
CASES = pytest.mark.parametrize("name", CONVOLUTIONS)


def convolve(attrs):
    return lambda x, w: torch.ops.aten.convolution(x, w, None, **attrs)


def layouts(sample):
    """The sample with channels first, and last where images are flat."""
    flat = sample.inputs()[0].dim() == 4
    return [sample, channels_last(sample)] if flat else [sample]


def check_layouts(sample, dtype, reference):
    check_all(sample, dtype, reference)
    if sample.inputs()[0].dim() != 4:
        return
    last = channels_last(sample)

    def in_rows(*operands):
        results = reference(*[x.movedim(-1, 1) for x in operands])
        return [x.movedim(1, -1) if x.dim() == 4 else x for x in results]

    check_all(last, dtype, in_rows)


@SIXTEEN_BIT
@CASES
def test_convolutions(name, dtype):
    image, weight, attrs = CONVOLUTIONS[name]
    sample = Sample("convolution", lambda: [randn(*image), randn(*weight)], attrs)
    check_layouts(sample, dtype, one(convolve(attrs)))


@SIXTEEN_BIT
@CASES
def test_gradients_of_convolutions(name, dtype):
    image, weight, attrs = CONVOLUTIONS[name]
    result = convolve(attrs)(torch.empty(image, device="meta"),
                             torch.empty(weight, device="meta")).shape
    for mask in ([True, True, False], [True, False, False], [False, True, False],
                 [False, False, True]):
        wanted = {**attrs, "output_mask": mask, "bias_sizes": [result[1]]}
        sample = Sample("convolution_backward",
                        lambda: [randn(*result), randn(*image), randn(*weight)], wanted)

        def reference(gradient, x, w):
            found = torch.ops.aten.convolution_backward(gradient, x, w, **wanted)
            return [torch.empty(0, dtype=torch.float64) if y is None else y for y in found]

        check_gradients(sample, dtype, reference)


def check_gradients(sample, dtype, reference):
    """As ``check_all``; results that were not asked for are empty."""
    for layout in layouts(sample):
        operands = layout.operands(dtype)
        last = layout is not sample
        wide = [x.movedim(-1, 1).double() if last else x.double() for x in operands]
        pairs = zip(reference(*wide), reference(*[x.abs() for x in wide]), strict=True)
        for got, (right, most) in zip(evaluate(layout, operands, dtype), pairs, strict=True):
            if got.numel():
                check(got.movedim(-1, 1) if last and got.dim() == 4 else got, right, most)


@SIXTEEN_BIT
@CASES
def test_convolutions_in_programs(name, dtype):
    """With weights that are packed once, and whatever passes make of them."""
    image, weight, attrs = CONVOLUTIONS[name]

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(weight))

        def forward(self, x):
            return torch.ops.aten.convolution(x, self.weight, None, **attrs)

    net, x = Layer().to(TORCH[dtype]), torch.randn(image).to(TORCH[dtype])
    wide, most = copy.deepcopy(net).double(), copy.deepcopy(net).double()
    most.weight.data.abs_()
    y = poptorch.inferenceModel(net, quiet_options())(x)
    check(y, wide(x.double()), most(x.double().abs()))
