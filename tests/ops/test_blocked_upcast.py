"""16-bit floats upcast block by block: the bits of whole tensors, at any number of threads."""

import pytest
import torch

from tests.helpers import check_equal_bits
from tests.ops.sample import Sample, evaluate, integers

SIXTEEN_BIT = pytest.mark.parametrize("dtype", ["f16", "bf16"])
SWITCHES = "blocked_upcast,bf16_unit"


def randn(*sizes):
    return torch.randn(*sizes)


def rows_of(entries, width, *sizes):
    """A gradient of looked-up rows, and which rows they are; most of them occur often."""
    return [randn(*sizes, width), integers(0, entries, *sizes)]


POOL = {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1]}
# Sizes that leave a part of a block, a row or an inner loop over.
LARGE = [
    Sample("_log_softmax", lambda: [randn(37, 1000)], {"dim": 1}),
    Sample("_softmax", lambda: [randn(5, 70, 300)], {"dim": 1}),
    Sample("_log_softmax_backward_data", lambda: [randn(37, 1000), randn(37, 1000)], {"dim": -1}),
    Sample("native_layer_norm", lambda: [randn(301, 96), randn(96), randn(96)],
           {"normalized_shape": [96], "eps": 1e-5}),
    Sample("avg_pool2d", lambda: [randn(3, 5, 60, 50)], POOL),
    Sample("add", lambda: [randn(70, 301), randn(301)]),
    Sample("mul", lambda: [randn(70, 301), randn(70, 1)], note="columns"),
    Sample("sub", lambda: [randn(301, 70).t(), randn(70, 301)], note="transposed"),
    Sample("mul", lambda: [randn(40, 50, 7), randn(40, 1, 7)], note="short rows"),
    Sample("gelu", lambda: [randn(600, 2)[:, 0]], note="stepped"),
    Sample("lt", lambda: [randn(1000), randn(1000)]),
    Sample("pow", lambda: [randn(1000), torch.tensor(3.0)]),
    Sample("dropout", lambda: [randn(70, 301), torch.tensor([1, 2, 0, 3], dtype=torch.int32)],
           {"p": 0.25, "salt": 2}),
    Sample("embedding_backward", lambda: rows_of(30, 400, 4, 50), {"num_weights": 30}),
    Sample("embedding_backward", lambda: rows_of(700, 9, 3000),
           {"num_weights": 700, "padding_idx": 5}, note="narrow"),
    Sample("embedding_backward", lambda: [*rows_of(700, 9, 3000), randn(700, 9)],
           {"num_weights": 700}, note="sum"),
    Sample("embedding_backward", lambda: rows_of(50, 300, 3000),
           {"num_weights": 50, "scale_grad_by_freq": True}, note="by count"),
]
BY_ID = {"ids": lambda case: case.id}


@SIXTEEN_BIT
@pytest.mark.parametrize("case", LARGE, **BY_ID)
def test_blocks_give_the_bits_of_whole_tensors(case, dtype, monkeypatch):
    operands = case.operands(dtype)
    blocks = [evaluate(case, operands, dtype, threads=n) for n in (1, 2, 3)]
    monkeypatch.setenv("POPTORCH_OFF", SWITCHES)
    whole = evaluate(case, operands, dtype)
    for results in blocks:
        check_equal_bits(results, whole)


def added(m, n, k):
    return [randn(n), randn(m, k), randn(n, k).t()]


# More than one block, of either size, with rows and columns left over.
PRODUCTS = [
    Sample("matmul", lambda: [randn(530, 70), randn(70, 601)]),
    Sample("matmul", lambda: [randn(70, 530).t(), randn(601, 70).t()], note="transposed"),
    Sample("matmul", lambda: [randn(1600, 33), randn(33, 1100)], note="large blocks"),
    Sample("matmul", lambda: [randn(7, 65, 33), randn(7, 33, 40)], note="batch"),
    Sample("matmul", lambda: [randn(2, 300, 33), randn(2, 33, 400)], note="two"),
    Sample("addmm", lambda: added(300, 515, 64), {"alpha": 0.5, "beta": 2.0}),
    Sample("addmm", lambda: added(300, 515, 64), {"beta": 0.0}, note="nothing added"),
    # More than one piece of a sum, and sums that are cut.
    Sample("addmm", lambda: added(70, 150, 1300), {"alpha": 0.5, "beta": 2.0}, note="pieces"),
    Sample("matmul", lambda: [randn(1300, 70).t(), randn(150, 1300).t()], note="pieces"),
    Sample("addmm", lambda: added(61, 50, 5003), {"alpha": 0.5, "beta": 2.0}, note="deep"),
    Sample("matmul", lambda: [randn(700, 5003), randn(5003, 1)], note="deep"),
    Sample("addmm", lambda: added(5, 7, 0), {"beta": 2.0}, note="no sums"),
]


@SIXTEEN_BIT
@pytest.mark.parametrize("case", PRODUCTS, **BY_ID)
def test_products(case, dtype):
    """Summed in f32 or better and rounded once; equal bits at any number of threads."""
    operands = case.operands(dtype)
    one, two, three = (evaluate(case, operands, dtype, threads=n)[0] for n in (1, 2, 3))
    check_equal_bits([two, three], [one, one])
    wide = [x.double() for x in operands]
    exact = torch.matmul(*wide) if case.op == "matmul" else torch.addmm(*wide, **case.attrs)
    step = 2.0**-11 if dtype == "f16" else 2.0**-8
    error = (one.double() - exact).abs()
    assert bool((error <= step * exact.abs() + 1e-5 * exact.abs().max()).all())


CONVOLUTION = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": False,
               "output_padding": [0, 0], "groups": 1}


@SIXTEEN_BIT
@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("kernel, stride, channels",
                         [(3, 1, 16), (3, 2, 3), (1, 1, 16), (1, 2, 16)])
def test_convolutions(kernel, stride, channels, layout, dtype):
    """Gradients summed over many pixels keep their bits at any number of threads."""
    geometry = CONVOLUTION | {"stride": [stride] * 2, "padding": [kernel // 2] * 2}
    side = 14 // stride

    def inputs():
        images = [randn(16, 32, side, side), randn(16, channels, 14, 14),
                  randn(32, channels, kernel, kernel)]
        last = layout == "channels_last"
        return [x.movedim(1, -1).contiguous() if last else x for x in images]

    backward = Sample("convolution_backward", inputs,
                      geometry | {"output_mask": [True, True, True], "layout": layout})
    operands = backward.operands(dtype)
    one, two = (evaluate(backward, operands, dtype, threads=n) for n in (1, 2))
    check_equal_bits(two, one)
    first = [x.movedim(-1, 1) if layout == "channels_last" else x for x in operands]
    exact = torch.ops.aten.convolution_backward(
        *[x.double() for x in first], [32], *geometry.values(), [True, True, True])
    step = 2.0**-11 if dtype == "f16" else 2.0**-8
    for ours, wide in zip(one, exact, strict=True):
        ours = ours.movedim(-1, 1) if layout == "channels_last" and ours.dim() > 2 else ours
        error = (ours.double() - wide).abs()
        assert bool((error <= step * wide.abs() + 1e-5 * wide.abs().max()).all())
