"""Python numbers with integer tensors that cannot hold them: eager's results, or an error.
"""

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.helpers import quiet_options

SHORT = [torch.uint8, torch.int8, torch.int16, torch.int32]
LIMITS = torch.iinfo(torch.int64)
# An operand wraps around, as it does in C++.
OPERANDS = {
    "add": lambda x: x + 1000, "add far": lambda x: x + 2**40, "sub": lambda x: x - 200,
    "sub far": lambda x: x - 2**31, "rsub": lambda x: 300 - x, "mul": lambda x: x * 300,
    "mul negative": lambda x: x * -7, "floor_divide": lambda x: x // 300, "rem": lambda x: x % 300,
    "fmod": lambda x: x.fmod(300), "xor": lambda x: x ^ 300, "or": lambda x: x | 200,
    "and": lambda x: x & -2, "eq": lambda x: x == 300, "eq far": lambda x: x == 2**40,
    "lt": lambda x: x < 300, "gt": lambda x: x > -1, "ge far": lambda x: x >= -2**40,
}
# What is kept in a tensor, and a bound, must fit; uint8 takes negative numbers.
KEPT = {
    "clamp": lambda x: x.clamp(-100, 100), "clamp min": lambda x: x.clamp(min=-1),
    "clamp max": lambda x: x.clamp_max(3), "threshold": lambda x: F.threshold(x, 5, -1),
    "full_like": lambda x: torch.full_like(x, -1), "fill": lambda x: x.clone().fill_(-7),
    "where": lambda x: torch.where(x > 3, x, -1), "masked_fill": lambda x: x.masked_fill(x > 3, -1),
}
TOO_LARGE = {
    "full_like": lambda x: torch.full_like(x, 2**40), "fill": lambda x: x.clone().fill_(2**40),
    "new_full": lambda x: x.new_full((2,), 2**40), "where": lambda x: torch.where(x > 3, x, 2**40),
    "masked_fill": lambda x: x.masked_fill(x > 3, 2**40),
}


class Calls(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def through_poptorch(function, x):
    return poptorch.inferenceModel(Calls(function), quiet_options())(x)


@pytest.mark.parametrize("name", [*OPERANDS, *KEPT])
@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_numbers_become_those_of_the_type(dtype, name):
    function = (OPERANDS | KEPT)[name]
    x = torch.tensor([7, 0, 100, 5], dtype=dtype)
    torch.testing.assert_close(through_poptorch(function, x), function(x), rtol=0, atol=0)


@pytest.mark.parametrize("name", TOO_LARGE)
@pytest.mark.parametrize("dtype", [*SHORT, torch.int64], ids=str)
def test_numbers_that_no_tensor_holds_are_refused(dtype, name):
    with pytest.raises(poptorch.Error) as caught:
        through_poptorch(TOO_LARGE[name], torch.tensor([7, 0], dtype=dtype))
    message = str(caught.value)
    words = ("the value 1099511627776 does not fit into int32" if dtype is torch.int64
             else "without overflow. Eager PyTorch refuses")
    assert words in message and "test_numbers.py" in message


@pytest.mark.parametrize("compare", [torch.eq, torch.lt, torch.ge])
def test_comparisons_with_what_int32_does_not_hold(compare):
    x = torch.tensor([7])
    assert through_poptorch(lambda x: compare(x, 2**40), x).equal(compare(x, 2**40))


def test_limits_of_64_bits_become_those_of_32():
    x = torch.tensor([7])
    assert through_poptorch(lambda x: torch.full_like(x, LIMITS.max), x).item() == 2**31 - 1
    assert through_poptorch(lambda x: torch.full_like(x, LIMITS.min), x).item() == -2**31
    assert through_poptorch(lambda x: x.clamp(-2**40, LIMITS.max), x).item() == 7


def test_a_fill_that_float32_does_not_hold_is_refused():
    with pytest.raises(poptorch.Error, match="1e.300 does not fit into float32"):
        through_poptorch(lambda x: torch.full_like(x, 1e300), torch.ones(2, dtype=torch.float64))
