"""Samples of the matrix products."""

import torch

from tests.ops.sample import Bad, Sample, bools, integers, randn, scalar

SHAPES = [
    ((5, 7), (7, 9)),
    # One row or one column. (One number alone can be near 0, and eager be exact by luck.)
    ((1, 64), (64, 30)),
    ((30, 64), (64, 1)),
    ((16, 64), (64, 128)),
    ((130, 70), (70, 200)),  # several blocks
    ((3, 0), (0, 4)),
    ((0, 3), (3, 4)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4, 5), (3, 5, 6)),
    ((2, 1, 4, 5), (1, 3, 5, 6)),
    ((3, 4, 5), (5, 6)),
    ((4, 5), (3, 5, 6)),
    ((7, 5000), (5000, 9)),  # a sum cut into parts
    ((70, 9001), (9001, 50)),
]
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def product(left, right):
    return Sample("matmul", lambda: [randn(*left), randn(*right)], reference=torch.matmul,
                  note=f"{left}@{right}")


def whole(dtype):
    return Sample("matmul", lambda: [integers(0, 100, 5, 70, dtype=dtype),
                                     integers(0, 100, 70, 6, dtype=dtype)],
                  reference=torch.matmul, note=str(dtype))


def added(op, bias, left, right, **attrs):
    return Sample(op, lambda: [randn(*bias), randn(*left), randn(*right)], attrs,
                  note=f"{bias}+{left}@{right}")


SAMPLES = [
    *[product(left, right) for left, right in SHAPES],
    *[whole(dtype) for dtype in INTEGERS],
    added("addmm", (9,), (5, 7), (7, 9)),
    added("addmm", (5, 1), (5, 7), (7, 9)),
    added("addmm", (5, 9), (5, 7), (7, 9)),
    added("addmm", (1,), (5, 7), (7, 9), beta=0.5, alpha=-2.0),
    added("addmm", (5, 9), (5, 7), (7, 9), beta=0.5, alpha=-2.0),
    added("addmm", (9,), (5, 7), (7, 9), beta=0.0),
    added("addmm", (128,), (160, 64), (64, 128)),
    Sample("addmm", lambda: [integers(-9, 9, 6), integers(-9, 9, 5, 7), integers(-9, 9, 7, 6)],
           {"beta": 2.0, "alpha": 3.0}, note="integers",
           reference=lambda s, a, b: torch.addmm(s, a, b, beta=2, alpha=3)),
    Sample("addmm", lambda: [scalar(2.0), randn(5, 7), randn(7, 9)], note="scalar"),
    added("baddbmm", (2, 4, 6), (2, 4, 5), (2, 5, 6)),
    added("baddbmm", (6,), (2, 4, 5), (2, 5, 6), beta=2.0),
    added("baddbmm", (2, 1, 1), (2, 4, 5), (2, 5, 6), alpha=0.5),
]

BADS = [
    Bad("matmul", lambda: [randn(5, 7), randn(8, 9)], words="inner dimensions differ"),
    Bad("matmul", lambda: [randn(5, 7), randn(7, 9).double()], words="dtypes differ"),
    Bad("matmul", lambda: [randn(7), randn(7, 9)], words="at least 2 dimensions"),
    Bad("matmul", lambda: [bools(5, 7), bools(7, 9)], words="a product of bool"),
    Bad("matmul", lambda: [randn(2, 5, 7), randn(3, 7, 9)], words="do not broadcast"),
    Bad("addmm", lambda: [randn(8), randn(5, 7), randn(7, 9)], words="do not broadcast"),
    Bad("addmm", lambda: [randn(2, 5, 9), randn(5, 7), randn(7, 9)],
        words="cannot be expanded to the product"),
    Bad("addmm", lambda: [integers(0, 9, 9), randn(5, 7), randn(7, 9)], words="dtypes differ"),
]
