"""Weight updates of 16-bit floats: computed in f32 and rounded once."""

import pytest
import torch

from tests.helpers import Cases, check_equal_bits
from tests.ops.sample import TORCH, as_dtype, evaluate
from tests.ops.samples.optimizer import SAMPLES
from tests.ops.samples.optimizer import sgd as sgd_sample

pytestmark = pytest.mark.usefixtures("isa")


def check_rounded_once(case, operands, dtype, **settings):
    """The update in 16 bits is that of f32 tensors, rounded; returns it. Compilers may sum products
    in another order, so what is rounded may be off by a few roundings of f32."""
    ours = evaluate(case, operands, dtype, **settings)
    exact = evaluate(case, [as_dtype(x, "f32") for x in operands])
    for half, wide in zip(ours, exact, strict=True):
        off = wide.abs() * 2.0**-21 + 2.0**-22  # of terms around 1, which may cancel
        ends = [(wide + by).to(TORCH[dtype]) for by in (-off, off)]
        low, high = torch.minimum(*ends), torch.maximum(*ends)
        assert ((low <= half) & (half <= high)).all()
    return ours


def check_all_ways(case, dtype):
    halves = case.operands(dtype)
    if case.op.endswith("_update"):  # hyper-parameters and step counts stay as they are
        halves[-2:] = case.operands()[-2:]
    expected = check_rounded_once(case, halves, dtype, threads=1)
    for threads in (2, 3):
        check_equal_bits(evaluate(case, halves, dtype, threads=threads), expected)
    places = [0] + [-1] * (len(expected) - 1)
    check_equal_bits(evaluate(case, halves, dtype, inplace=places), expected)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_updates_round_once(dtype):
    with Cases() as cases:
        for case in SAMPLES:
            with cases.case(case.id, dtype):
                check_all_ways(case, dtype)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_parts_of_a_vector(dtype):
    """With hyper-parameters and a step count in half precision, too."""
    with Cases() as cases:
        for sizes in [(1,), (7,), (16,), (3, 11)]:
            with cases.case(sizes):
                case = sgd_sample((0.1, 0.9, 0.2, 0.01), sizes=sizes)
                halves = case.operands(dtype)
                assert {x.dtype for x in halves} == {TORCH[dtype]}
                check_rounded_once(case, halves, dtype)
