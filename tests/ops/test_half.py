"""Half precision: all 16-bit values, NaN and infinity; float32 within, and one rounding."""

import numpy as np
import pytest
import torch

from poptorch import _C
from tests.helpers import Cases
from tests.ops.sample import ROWS, evaluate
from tests.ops.subject import is_rounded
from tests.ops.test_ops import ROWS_SAMPLED, subject_of

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


def check_rounded_once(subject, dtype):
    """The results are those of the float32 kernel for the same numbers, rounded.

    Sums of 16-bit numbers may be taken in another order than those of float32 ones, so that the
    sums differ by an error of float32, and by no more than that.
    """
    operands, sample = subject.operands(dtype), subject.sample
    wide = [x.float() if x is not None and x.is_floating_point() else x for x in operands]
    expected = evaluate(sample, wide, "f32")
    eager32 = expected if sample.check is not None else subject.references(dtype)[0]
    triples = zip(subject.results(dtype), expected, eager32, strict=True)
    for i, (ours, full, narrow) in enumerate(triples):
        if not ours.is_floating_point() or ours.dtype is torch.float32:
            continue
        assert torch.equal(ours.isnan(), full.isnan()), f"result {i}: NaN"
        narrow = full if narrow is None else narrow
        is_right = is_rounded(ours, full.double(), narrow, dtype, dtype in sample.rounded_within)
        assert is_right, f"result {i}: {ours}, expected {full}"


@pytest.mark.parametrize("row", [row for row in ROWS if ROWS_SAMPLED[row]])
def test_rows_compute_in_float32_and_round_once(row, seed, sampled):
    with Cases() as cases:
        for number, sample in sampled(enumerate(ROWS_SAMPLED[row])):
            subject = subject_of(sample, seed)
            for dtype in subject.halves():
                with cases.case(f"{row} {number} ({sample.id}):", "one rounding", dtype):
                    check_rounded_once(subject, dtype)
