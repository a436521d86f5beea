"""Copies into another order, of items of each size."""

import random

import numpy as np
import pytest

from poptorch import _C

SIDES = (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 64, 70)  # around those of tiles


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "bf16", "int32", "float64"])
def test_transposes(dtype, seed):
    rng = random.Random(seed)
    for _ in range(60):
        sizes = [rng.choice(SIDES) for _ in range(rng.choice((2, 2, 3)))]
        order = rng.sample(range(len(sizes)), len(sizes))
        most = 250 if dtype == "uint8" else 60000
        bits = np.random.default_rng(rng.randrange(2**32)).integers(0, most, sizes)
        x = bits.astype("uint16" if dtype == "bf16" else dtype).transpose(order)
        if rng.random() < 0.3:  # a part of a larger tensor
            x = x[..., x.shape[-1] // 3:]
        found, = _C.evaluate("contiguous", [(x, "bf16") if dtype == "bf16" else x], {},
                             threads=rng.choice((1, 2)))
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, x, err_msg=f"{sizes} {order}")
