"""Samples of regions of element-wise ops."""

import torch
import torch.nn.functional as F

from poptorch import _C
from tests.ops.sample import Bad, Sample, randn


def _chain(x, scale, shift):
    y = F.relu(x * scale + shift)
    return y, y > x


def _dropped(x, dropped, out):
    """Dropout of ``x`` keeps a part of the elements and doubles it."""
    kept = dropped != 0
    assert 0.3 < kept.float().mean() < 0.7
    assert torch.equal(dropped[kept], (2 * x)[kept])
    assert torch.equal(out, dropped - x)


CHAIN = {"body": [["mul", 0, 1], ["add", 3, 2], ["relu", 4], ["gt", 5, 0]], "out": [5, 6]}

SAMPLES = [
    Sample("fused", lambda: [randn(5, 700), randn(700), randn(5, 1)], CHAIN, _chain,
           dtypes=("f32", "f64"), note="long-rows"),
    Sample("fused", lambda: [randn(300, 7), randn(7), randn()], CHAIN, _chain,
           dtypes=("f32", "f64"), note="short-rows"),
    Sample("fused", lambda: [randn(6, 4).T, randn(4, 6), randn(1, 6)], CHAIN, _chain,
           dtypes=("f32", "f64"), note="strides"),
    Sample("fused", lambda: [randn(0, 3), randn(3), randn(3)], CHAIN, _chain,
           dtypes=("f32", "f64"), note="empty"),
    Sample("fused", lambda: [randn(40, 50), torch.tensor(2.0)],
           {"body": [["pow", 0, 1], ["lt", 0, 1], ["cast", 3, "dtype", _C.DType("i64")],
                     ["neg", 4], ["where", 3, 2, 0]], "out": [5, 6]},
           lambda x, y: (-(x < y).long(), torch.where(x < y, x**2, x)), dtypes=("f32",),
           note="dtypes"),
    Sample("fused", lambda: [randn(40, 50), torch.tensor([1, 2, 0, 3], dtype=torch.int32)],
           {"body": [["dropout", 0, 1, "p", 0.5, "salt", 3], ["sub", 2, 0]], "out": [2, 3]},
           check=lambda operands, results: _dropped(operands[0], *results), dtypes=("f32",),
           note="dropout"),
]

BADS = [
    Bad("fused", lambda: [randn(2)], {"body": [], "out": []}, "body is empty"),
    Bad("fused", lambda: [randn(2)], {"body": [["relu", 1]], "out": [1]}, "number 1 is of no"),
    Bad("fused", lambda: [randn(2)], {"body": [["relu", 0]], "out": [0]}, "an operand"),
    Bad("fused", lambda: [randn(2)], {"body": [["relu", 0]], "out": [1, 1]}, "twice"),
    Bad("fused", lambda: [randn(2)], {"body": [["relu", 0, "x"]], "out": [1]}, "Write these"),
    Bad("fused", lambda: [randn(2)], {"body": [["sum", 0]], "out": [1]}, "element by element"),
    Bad("fused", lambda: [randn(2), randn(3, 1)],
        {"body": [["relu", 0], ["add", 2, 1]], "out": [3]}, "Make them equal"),
]
