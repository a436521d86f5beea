"""Random functions give results of eager's types and sizes, whatever types their arguments have."""

import random

import torch
import torch.nn.functional as F

import poptorch
from poptorch._base.types import narrowed
from tests.helpers import Cases, quiet_options

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.int32,
          torch.uint8, torch.bool]
LIKE = [None, *DTYPES]
# Of two tensors and a dtype.
FUNCTIONS = {
    "normal": lambda x, y, dtype: torch.normal(x, y),
    "normal of a number": lambda x, y, dtype: torch.normal(x, 1),
    "normal of a mean": lambda x, y, dtype: torch.normal(0.5, y),
    "normal, out": lambda x, y, d: torch.normal(
        x.double(), y, out=torch.empty(3, dtype=y.dtype)),
    "Normal": lambda x, y, dtype: torch.distributions.Normal(x, y, validate_args=False).rsample(),
    "Uniform": lambda x, y, dtype: torch.distributions.Uniform(
        x, x + y, validate_args=False).sample(),
    "Gamma": lambda x, y, dtype: torch.distributions.Gamma(x, y, validate_args=False).sample(),
    "Beta": lambda x, y, dtype: torch.distributions.Beta(x, y, validate_args=False).sample(),
    "bernoulli": lambda x, y, dtype: torch.bernoulli(x),
    "bernoulli_": lambda x, y, dtype: x.clone().bernoulli_(y),
    "poisson": lambda x, y, dtype: torch.poisson(x),
    "binomial": lambda x, y, dtype: torch.binomial(x, y),
    "multinomial": lambda x, y, dtype: torch.multinomial(x, 1),
    "rand_like": lambda x, y, dtype: torch.rand_like(x, dtype=dtype),
    "randn_like": lambda x, y, dtype: torch.randn_like(x, dtype=dtype),
    "randint_like": lambda x, y, dtype: torch.randint_like(x, 2, dtype=dtype),
    "rand": lambda x, y, dtype: torch.rand(3, dtype=dtype),
    "randn": lambda x, y, dtype: torch.randn(3, dtype=dtype),
    "randint": lambda x, y, dtype: torch.randint(1, 3, (3,), dtype=dtype),
    "randperm": lambda x, y, dtype: torch.randperm(3, dtype=dtype or torch.int64),
    "dropout": lambda x, y, dtype: F.dropout(x, 0.5), "gumbel": lambda x, y, d: F.gumbel_softmax(x),
    "alpha_dropout": lambda x, y, dtype: F.alpha_dropout(x, 0.5),
    "rrelu": lambda x, y, dtype: F.rrelu(x, training=True),
    "uniform_": lambda x, y, dtype: y.clone().uniform_(),
    "random_": lambda x, y, d: y.clone().random_(2),
    "normal_": lambda x, y, dtype: y.clone().normal_(),
    "exponential_": lambda x, y, dtype: y.clone().exponential_(),
    "geometric_": lambda x, y, dtype: y.clone().geometric_(0.5),
    "cauchy_": lambda x, y, dtype: y.clone().cauchy_(),
}


class Draws(torch.nn.Module):
    def __init__(self, function, dtype):
        super().__init__()
        self.function, self.dtype = function, dtype

    def forward(self, x, y):
        return self.function(x, y, self.dtype)


def halves(dtype, count):
    return torch.full((count,), 0.5 if dtype.is_floating_point else 1).to(dtype)


def check(name, first, second, dtype, count):
    module = Draws(FUNCTIONS[name], dtype)
    arguments = halves(first, 3), halves(second, count)
    try:
        expected = module(*arguments)
    except (RuntimeError, TypeError, ValueError):  # eager takes no such types
        return
    drawn = poptorch.inferenceModel(module, quiet_options())(*arguments)
    assert (drawn.dtype, drawn.shape) == (narrowed(expected.dtype), expected.shape)


def test_results_have_the_types_of_eager(seed):
    drawn = random.Random(seed)
    with Cases() as cases:
        for name in FUNCTIONS:
            for _ in range(2):
                how = drawn.choice(DTYPES), drawn.choice(DTYPES), drawn.choice(LIKE)
                with cases.case(name, *how):
                    check(name, *how, drawn.choice([3, 1]))


def test_normal_has_the_type_of_its_means():
    floats = [dtype for dtype in DTYPES if dtype.is_floating_point]
    with Cases() as cases:
        for mean in floats:
            for std in floats:
                with cases.case(mean, std):
                    check("normal", mean, std, None, 3)
