"""Half precision through the widening wrapper: all 16-bit values, rounding, NaN and infinity."""

import numpy as np
import pytest
import torch

from poptorch import _C

# `cumsum` of one element is that element, computed in f32 and rounded back.
ALL_BITS = np.arange(2**16, dtype=np.uint16).reshape(-1, 1)


def through_f32(operand):
    (result,) = _C.evaluate("cumsum", [operand], {"dim": 1}, threads=2)
    return result


def test_every_f16_survives():
    values = ALL_BITS.view(np.float16)
    assert np.array_equal(through_f32(values), values, equal_nan=True)


def test_every_bf16_survives():
    result = through_f32((ALL_BITS, "bf16"))
    result[ALL_BITS == 0x8000] |= 0x8000  # 0.0 + -0.0 is 0.0
    is_nan = (ALL_BITS & 0x7FFF) > 0x7F80
    assert np.array_equal(result[~is_nan], ALL_BITS[~is_nan])
    assert np.all((result[is_nan] & 0x7FFF) > 0x7F80)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_results_round_to_nearest_even(seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    exponent = torch.randint(-30, 20, [20000, 1], generator=generator)
    pair = torch.randn(20000, 2, generator=generator) * 2.0**exponent
    pair = pair.to(dtype)
    bits = pair.view(torch.int16).numpy().view(np.uint16)
    operand = bits.view(np.float16) if dtype == torch.float16 else (bits, "bf16")
    (result,) = _C.evaluate("sum", [operand], {"dim": [1]})
    expected = pair.float().sum(1).to(dtype).view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(result.view(np.uint16), expected)
