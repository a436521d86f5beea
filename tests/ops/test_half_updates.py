"""Weight updates of halves: computed in f32 and rounded once, to the last bit."""

import pytest

from tests.helpers import Cases, check_equal_bits
from tests.ops.sample import TORCH, as_dtype, evaluate
from tests.ops.samples.optimizer import SAMPLES
from tests.ops.samples.optimizer import sgd as sgd_sample

pytestmark = pytest.mark.usefixtures("isa")


def rounded(case, operands, dtype):
    """What the update of f32 tensors gives for these operands, rounded."""
    results = evaluate(case, [as_dtype(x, "f32") for x in operands])
    return [x.to(TORCH[dtype]) for x in results]


def check_rounded_once(case, dtype):
    halves = case.operands(dtype)
    if case.op.endswith("_update"):  # hyper-parameters and step counts stay as they are
        halves[-2:] = case.operands()[-2:]
    expected = rounded(case, halves, dtype)
    for threads in (1, 2, 3):
        check_equal_bits(evaluate(case, halves, dtype, threads=threads), expected)
    places = [0] + [-1] * (len(expected) - 1)
    check_equal_bits(evaluate(case, halves, dtype, inplace=places), expected)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_updates_round_once(dtype):
    with Cases() as cases:
        for case in SAMPLES:
            with cases.case(case.id, dtype):
                check_rounded_once(case, dtype)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_parts_of_a_vector(dtype):
    """With hyper-parameters and a step count in half precision, too."""
    with Cases() as cases:
        for sizes in [(1,), (7,), (16,), (3, 11)]:
            with cases.case(sizes):
                case = sgd_sample((0.1, 0.9, 0.2, 0.01), sizes=sizes)
                halves = case.operands(dtype)
                assert {x.dtype for x in halves} == {TORCH[dtype]}
                check_equal_bits(evaluate(case, halves, dtype), rounded(case, halves, dtype))
