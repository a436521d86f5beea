"""Random numbers of programs: ends of ranges, what does not fit, what PyTorch refuses."""

import re

import pytest
import torch

import poptorch
from tests.helpers import quiet_options


def run(function, *args):
    class Net(torch.nn.Module):
        def forward(self, *args):
            return function(*args)

    return poptorch.inferenceModel(Net(), quiet_options())(*args)


ONE = torch.ones(1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (2, 3), (-1, 1)])
def test_the_upper_end_is_not_drawn(dtype, low, high):
    def forward(x):
        drawn = torch.empty(200_000, dtype=dtype).uniform_(low, high)
        return drawn, torch.rand(200_000, dtype=dtype), torch.rand_like(drawn)

    drawn, *units = run(forward, ONE)
    assert drawn.min() >= low and drawn.max() < high
    assert drawn.float().mean() == pytest.approx((low + high) / 2, abs=0.02)
    assert all(unit.min() >= 0 and unit.max() < 1 for unit in units)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.filterwarnings("ignore:.*is out of bounds")  # of eager
@pytest.mark.parametrize(("low", "high"), [(0, 300), (0, 4100), (-300, 7), (1000, 4097), (3, 2049)])
def test_whole_numbers_between_which_a_type_has_none(dtype, low, high):
    def forward(x):
        return torch.randint(low, high, (200_000,), dtype=dtype)

    torch.manual_seed(0)
    expected, drawn = forward(ONE), run(forward, ONE)
    assert drawn.min() == expected.min() and drawn.max() == expected.max()


def test_exponential_numbers_are_positive():
    """Each would be 0 with a chance of 2^-24: nearly certainly one of these."""
    drawn = run(lambda x: (torch.empty(2**27).exponential_() > 0).all() & (x > 0), ONE)
    assert drawn.all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_numbers_of_the_whole_range_are_not_negative(dtype):
    drawn = run(lambda x: torch.empty(1000, dtype=dtype).random_(), ONE)
    assert drawn.min() >= 0 and len(drawn.unique()) > 100


@pytest.mark.parametrize("draw", [
    lambda x: torch.randint(0, 2**32, (4,)),
    lambda x: torch.randint(-2**40, 0, (4,)),
    lambda x: torch.empty(4, dtype=torch.int64).random_(2**40, 2**40 + 3),
    lambda x: torch.zeros(3, dtype=torch.int64).random_(2**33),
    lambda x: torch.randint_like(torch.zeros(3, dtype=torch.int64), 2**33),
])
def test_numbers_that_do_not_fit_are_refused(draw):
    with pytest.raises(poptorch.Error, match=r"\[random integers\] the value .* does not fit into "
                                             r"int32(?s:.*)test_rules_random\.py:"):
        run(draw, ONE)


def test_the_largest_number_that_fits():
    drawn = run(lambda x: torch.randint(2**31 - 2, 2**31, (100,)), ONE)
    assert set(drawn.tolist()) == {2**31 - 2, 2**31 - 1}


REFUSED = {
    "probability": (lambda x: torch.zeros(2).bernoulli_(1.5), "expects p to be in [0, 1]"),
    "probabilities": (lambda x: torch.bernoulli(x + 0.5), "[bernoulli] a probability is 1.5. Give"),
    "deviation": (lambda x: torch.normal(0.0, -x), "all elements of std >= 0.0"),
    "deviations": (lambda x: torch.normal(x, -x), "all elements of std >= 0.0"),
    "range": (lambda x: torch.zeros(2).uniform_(1, 0), "found from=1 > to=0"),
    "infinite range": (lambda x: torch.zeros(2).uniform_(0, float("inf")), "[uniform] "),
    "wide range": (lambda x: torch.zeros(2).uniform_(-3e38, 3e38), "[uniform] "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    function, words = REFUSED[name]
    with pytest.raises(poptorch.Error, match=re.escape(words)) as found:
        run(function, ONE)
    assert "test_rules_random.py:" in str(found.value)
