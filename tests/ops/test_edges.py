"""Numbers at the edges of types and ranges: the bits of eager."""

import math

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.helpers import Applied, check_equal_bits, quiet_options

SIGNED = torch.tensor([-0.0, 0.0, 2.0, float("nan"), float("-inf"), float("inf")])
INTS = torch.tensor([0, 1, 200])
LARGEST = 2**63 - 1


def inverse(function):
    """The sign of a zero shows in its inverse."""
    return lambda x: 1 / function(x)


def narrow(*values):
    return [torch.tensor(x, dtype=torch.bfloat16) for x in values]


CASES = {
    "clamp": (inverse(lambda x: x.clamp(min=0)), SIGNED),
    "clamp max": (inverse(lambda x: x.clamp(-1, -0.0)), SIGNED),
    "clamp nan": (lambda x: x.clamp(min=float("nan")), SIGNED),
    "relu6": (inverse(F.relu6), SIGNED),
    "hardtanh": (inverse(lambda x: F.hardtanh(x, 0.0, 1.0)), SIGNED),
    "tril of all": (lambda x: x.tril(LARGEST), torch.ones(2, 3)),
    "tril of nothing": (lambda x: x.tril(-LARGEST), torch.ones(2, 3)),
    "triu of all": (lambda x: x.triu(-LARGEST), torch.ones(2, 3)),
    "triu of nothing": (lambda x: x.triu(LARGEST), torch.ones(2, 3)),
    "roll": (lambda x: torch.roll(x, (1, LARGEST), (0, 0)), torch.arange(5.0)),
    "int16": (lambda x: x.to(torch.int16), torch.tensor([3e9, -3e9, 300.7])),
    "int8": (lambda x: x.to(torch.int8), torch.tensor([3e9, -3e9, 300.7])),
    "round to many places": (lambda x: x.round(decimals=400), SIGNED),
    "round to places before the point": (lambda x: x.round(decimals=-400), SIGNED),
    "trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"),
              *narrow([1.0, 0.5, 3.0], [0.1, 0.1, 0.3])),
    "trunc by one number": (lambda a, b: torch.div(a, b, rounding_mode="trunc"),
                            *narrow([1.0, 0.5, 3.0], [0.1])),
    "divide nothing": (lambda a, b: (a // b, a % b, a.fmod(b)), INTS.new_empty(0, 1), INTS),
    "norm of one number": (torch.nn.InstanceNorm1d(3, eps=0.0), torch.full((2, 3, 4), 3.0)),
    "nothing by zero": (lambda a, b: a // b, INTS.new_empty(0), torch.tensor(0)),
}


def check(function, *args):
    ours = poptorch.inferenceModel(Applied(function), quiet_options())(*args)
    check_equal_bits(ours, _narrowed(function(*args)))


def _narrowed(expected):
    if isinstance(expected, tuple):
        return tuple(map(_narrowed, expected))
    return expected.int() if expected.dtype is torch.int64 else expected


@pytest.mark.parametrize("name", CASES)
def test_bits(name):
    function, *args = CASES[name]
    check(function, *args)
    check(function, *(torch.cat([x] * 12, -1) if x.numel() > 1 else x for x in args))


def test_the_variance_of_nothing():
    model = poptorch.inferenceModel(
        Applied(lambda x: (x.var(1, correction=-1), x.std(1, correction=-1))), quiet_options())
    assert all(found.isnan().all() for found in model(torch.zeros(2, 0)))


def test_a_norm_of_one_number_is_trained():
    net = torch.nn.Sequential(torch.nn.InstanceNorm1d(3, eps=0.0, affine=True), Marked())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    model(torch.full((2, 3, 4), 3.0))
    model.copyWeightsToHost()
    assert net[0].weight.tolist() == [1.0] * 3 and net[0].bias.tolist() == [-4.0] * 3


class Marked(torch.nn.Module):
    def forward(self, x):
        return poptorch.identity_loss(x.sum(), "none")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("wrong", [1.5, -0.5, float("nan"), float("inf")])
def test_what_is_no_probability(wrong, reduction, dtype):
    model = poptorch.inferenceModel(
        Applied(lambda x: F.binary_cross_entropy(x, x.round(), reduction=reduction)),
        quiet_options())
    x = torch.linspace(0, 1, 9, dtype=dtype)
    expected = F.binary_cross_entropy(x, x.round(), reduction=reduction)
    for _ in range(2):
        torch.testing.assert_close(model(x), expected)
        with pytest.raises(poptorch.Error, match=r"^\[binary_cross_entropy\] an element of the "
                                                 rf"input is -?{abs(wrong)}. Give probabilities"):
            model(torch.cat([x[:-1], torch.tensor([wrong], dtype=dtype)]))


def test_least_integers():
    """Eager ends the process with some of these."""
    least = -2**31
    a = torch.tensor([[least], [-2], [-1], [0], [12]], dtype=torch.int32)
    b = torch.tensor([-1, -8, 0, least, 2**31 - 1, 1, 18], dtype=torch.int32)
    found = poptorch.inferenceModel(Applied(torch.lcm), quiet_options())(a, b)
    expected = [[math.lcm(x, y) for y in b.tolist()] for x in a.flatten().tolist()]
    wrapped = torch.tensor(expected).to(torch.int32)
    assert torch.equal(found.abs(), wrapped.abs())


@pytest.mark.parametrize("alpha", [-2, -1, 1, 3, 254])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32])
def test_multiples_of_the_second_operand(alpha, dtype):
    a, b = torch.tensor([0, 1, 200], dtype=dtype), torch.tensor([3, 2, 7], dtype=dtype)
    b[1] = 255 if dtype is torch.uint8 else 2
    check(lambda a, b: (torch.add(a, b, alpha=alpha), torch.sub(a, b, alpha=alpha),
                        torch.rsub(a, b, alpha=alpha), torch.add(a, 3, alpha=alpha)), a, b)
