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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("p", [0.999, torch.tensor(0.999)], ids=["number", "tensor"])
def test_a_probability_is_not_rounded_to_the_type_of_the_tensor(dtype, p):
    """In bfloat16 it would be 1."""
    n = 200_000
    drawn = run(lambda x: torch.empty(n, dtype=dtype).bernoulli_(p), ONE)
    zeros = (drawn == 0).sum().item()
    assert drawn.dtype is dtype
    assert abs(zeros - 0.001 * n) <= 5 * (0.001 * n) ** 0.5


def test_a_slope_of_rrelu_may_be_rounded_to_the_upper_end():
    """A draw in bfloat16 that is rounded to the end would come out as the start of the range."""
    def forward(x):
        return torch.nn.functional.rrelu(-torch.ones(200_000, dtype=torch.bfloat16), 0.1, 0.4, True)

    drawn = -run(forward, ONE)
    low, high = torch.tensor([0.1, 0.4], dtype=torch.bfloat16)
    assert drawn.min() == low and drawn.max() == high
    share = (drawn == high).double().mean().item()  # of (0.39941..., 0.4)
    assert share == pytest.approx((0.4 - 0.3994140625) / 0.3, rel=0.3)


def test_normal_numbers_are_rounded_once_before_the_mean_is_added():
    """So there are all numbers that bfloat16 has, not only the rounded triples of some."""
    drawn = run(lambda x: torch.normal(torch.zeros(500_000, dtype=torch.bfloat16), 3.0), ONE)
    among = drawn[(drawn >= 2) & (drawn < 4)].unique()
    assert len(among) == 128


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


@pytest.mark.parametrize(("dtype", "low", "high"), [
    (torch.float16, 0, 4098), (torch.float16, -2049, 0), (torch.bfloat16, 0, 258)])
@pytest.mark.filterwarnings("ignore:.*is out of bounds")
def test_whole_numbers_stay_in_their_range_under_stochastic_rounding(dtype, low, high):
    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.randint(low, high, (100_000,), dtype=dtype)

    options = quiet_options()
    options.Precision.enableStochasticRounding(True)
    drawn = poptorch.inferenceModel(Net(), options)(ONE).double()
    assert drawn.min() >= low and drawn.max() < high


def test_a_permutation_of_as_many_as_the_type_can_number():
    drawn = run(lambda x: torch.randperm(2049, dtype=torch.float16), ONE)
    assert torch.equal(drawn.sort().values, torch.arange(2049).half())


REFUSED = {
    "probability": (lambda x: torch.zeros(2).bernoulli_(1.5), "expects p to be in [0, 1]"),
    "probabilities": (lambda x: torch.bernoulli(x + 0.5), "[bernoulli] a probability is 1.5. Give"),
    "deviation": (lambda x: torch.normal(0.0, -x), "all elements of std >= 0.0"),
    "deviations": (lambda x: torch.normal(x, -x), "all elements of std >= 0.0"),
    "permutation": (lambda x: torch.randperm(2050, dtype=torch.float16),
                    "[randperm] n cannot be greater than 2049 for Half type."),
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
