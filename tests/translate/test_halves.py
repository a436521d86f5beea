"""Operations that are several ops of ours are rounded to 16 bits once, as eager's are."""

import copy

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.helpers import quiet_options

LARGE = torch.linspace(30, 41, 144).view(12, 12)  # the sum of the squares is more than f16 has
INFINITY = float("inf")

# name -> function of one tensor, and the tensor.
CASES = {
    "norm": (lambda x: x.norm(), LARGE),
    "norm of rows": (lambda x: x.norm(dim=1), 10 * LARGE),
    "norm of small numbers": (lambda x: x.norm(dim=1), 1e-5 * LARGE),
    "matrix_norm": (torch.linalg.matrix_norm, LARGE),
    **{f"vector_norm {p}": (lambda x, p=p: torch.linalg.vector_norm(x, p, dim=0), LARGE)
       for p in (0.5, 1, 2, 3, INFINITY, -INFINITY)},
    "normalize": (F.normalize, 10 * LARGE),
    "normalize small numbers": (F.normalize, 1e-5 * LARGE),
    "cosine_similarity": (lambda x: F.cosine_similarity(x, x.flip(1)), 10 * LARGE),
    "cosine_similarity of small ones": (lambda x: F.cosine_similarity(x, x.flip(1)), 1e-5 * LARGE),
    "dist": (lambda x: torch.dist(x, -x), LARGE),
    "pairwise_distance": (lambda x: F.pairwise_distance(x, -x), 10 * LARGE),
    "std": (lambda x: x.std(dim=1), 3000 * torch.linspace(-1, 1, 60).view(3, 20)),
    "std of small numbers": (lambda x: x.std(), 1e-4 * torch.linspace(-1, 1, 60).view(3, 20)),
    "round": (lambda x: x.round(decimals=2), LARGE),
}


NUMBERS = [0.1, 1 / 3, 70000.0, 1e-8, 100_000, 0.125, INFINITY]
SCALED = {
    "times": lambda x, c: x * 0.01 * c,
    "number first": lambda x, c: c * x * 0.01,
    "over": lambda x, c: x / c,
    "over a number's inverse": lambda x, c: x / (1e-3 / c),
    "floor": lambda x, c: x // c,
    "trunc": lambda x, c: torch.div(x, c, rounding_mode="trunc"),
    "tensor of one number": lambda x, c: x * 0.01 * torch.tensor(float(c)),
    "in place": lambda x, c: (x * 0.01).mul_(c).div_(0.3),
}


class Applied(torch.nn.Module):
    """The function of the parameter; the loss weighs the results."""

    def __init__(self, function, x):
        super().__init__()
        self.function = function
        self.x = torch.nn.Parameter(x)

    def forward(self):
        y = self.function(self.x)
        weights = torch.linspace(0.5, 1.0, y.numel()).view(y.shape)
        return y, poptorch.identity_loss((y.float() * weights).sum(), reduction="none")


def error(ours, exact):
    """The largest error over the largest number."""
    return ((ours.double() - exact).abs().max() / exact.abs().max()).item()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_rounded_once(name, dtype):
    function, x = CASES[name]
    net = Applied(function, x.to(dtype))
    wide = copy.deepcopy(net).double()
    eager = copy.deepcopy(net)
    for module in (wide, eager):
        module()[1].backward()
    with poptorch.testing.keep_gradients():
        model = poptorch.trainingModel(
            net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.0))
        y, _ = model()
        gradient = poptorch.testing.gradients(model)["x"]
    assert y.dtype == dtype and gradient.dtype == dtype
    exact = wide()[0].detach()
    rounding = torch.finfo(dtype).eps
    assert error(y, exact) <= 2 * error(eager()[0].detach(), exact) + rounding
    if wide.x.grad.any():
        limit = 4 * error(eager.x.grad, wide.x.grad) + 2 * rounding
        assert error(gradient, wide.x.grad) <= limit


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SCALED)
def test_numbers_keep_their_value(name, dtype):
    """A Python number or a scalar tensor with a 16-bit tensor is not rounded to 16 bits."""
    x = (0.5 + torch.rand(500)).to(dtype)
    calls = [lambda x, c=c: SCALED[name](x, c) for c in NUMBERS]

    class All(torch.nn.Module):
        def forward(self, x):
            return [call(x) for call in calls]

    results = poptorch.inferenceModel(All(), quiet_options())(x)
    for call, number, ours in zip(calls, NUMBERS, results, strict=True):
        eager, exact = call(x), call(x.double())
        assert ours.dtype == dtype
        fits = eager.isfinite()
        assert torch.equal(ours.isfinite(), fits), number
        ours, eager, exact = ours.double()[fits], eager.double()[fits], exact[fits]
        error = ((ours - exact).abs() - (eager - exact).abs()) / exact.abs().clamp(min=1e-7)
        assert fits.sum() == 0 or error.max() <= torch.finfo(dtype).eps / 8, number


@pytest.mark.parametrize("sizes", [(), (1,), (1, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_one_whole_number_keeps_its_value(sizes, dtype):
    """A tensor of one number is a number, in any number of dimensions."""
    def forward(x, one):
        return x / one, x * 0.01 * one, x[:1] / one, x // one, x.mul(0.01).mul_(one.view(()))

    class All(torch.nn.Module):
        def forward(self, x, one):
            return forward(x, one)

    x, one = (0.5 + torch.rand(40)).to(dtype), torch.full(sizes, 90_001)
    results = poptorch.inferenceModel(All(), quiet_options())(x, one)
    for ours, eager in zip(results, forward(x, one), strict=True):
        assert torch.equal(ours, eager)


@pytest.mark.parametrize("reduce", [torch.amax, torch.max, torch.amin,
                                    lambda x: torch.linalg.vector_norm(x, INFINITY)])
def test_more_equal_numbers_than_float16_counts(reduce):
    """The gradient of each is its part of the whole one."""
    x = torch.full((80_000,), 60.0).half()
    eager = x.clone().requires_grad_()
    (reduce(eager).float() * 1000).backward()

    class Reduced(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.x = torch.nn.Parameter(x.clone())

        def forward(self):
            return poptorch.identity_loss(reduce(self.x).float() * 1000, "sum")

    net = Reduced()
    with poptorch.testing.keep_gradients():
        model = poptorch.trainingModel(
            net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.0))
        model()
    assert torch.equal(poptorch.testing.gradients(model)["x"], eager.grad) and eager.grad.any()
