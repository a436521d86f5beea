"""CPU within loops and branches that are trained: the gradient is that of the call made before."""

import copy

import pytest
import torch

import poptorch
from tests.helpers import quiet_options


def _loop(count):
    return lambda net, v: poptorch.for_loop(count, lambda x: [net.host(x)], [v])[0]


def _branch(net, v):
    return poptorch.cond(v.sum() > 0, lambda x: [net.host(x)], [v], lambda x: [x * 5], [v])[0]


def _other_branch(net, v):
    return poptorch.cond(v.sum() < 0, lambda x: [x * 5], [v], lambda x: [net.host(x)], [v])[0]


def _nested(net, v):
    return poptorch.for_loop(2, lambda x: [_loop(2)(net, x)], [v])[0]


def _branch_in_a_loop(net, v):
    return poptorch.for_loop(2, lambda x: [_branch(net, x)], [v])[0]


class Net(torch.nn.Module):
    """A product with the number of the call, or with random numbers."""

    def __init__(self, part, is_random):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(3))
        self.part, self.is_random, self.calls = part, is_random, 0
        self.host = poptorch.CPU(self.multiplied, "multiplied")

    def multiplied(self, v):
        self.calls += 1
        return v * (torch.rand(3) if self.is_random else float(self.calls))

    def forward(self, x):
        v = self.part(self, self.w * x)
        return v * 1, poptorch.identity_loss(v.sum(), "sum")


@pytest.mark.parametrize("is_random", [False, True])
@pytest.mark.parametrize(("part", "calls"), [
    (_loop(2), 2), (_branch, 1), (_other_branch, 1), (_nested, 4), (_branch_in_a_loop, 2)])
def test_the_gradient_is_that_of_the_calls_of_the_forward_pass(part, calls, is_random):
    net = Net(part, is_random)
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=1.0))
    model.compile(torch.ones(3))
    net.calls = 0
    v, _ = model(torch.ones(3))
    model.copyWeightsToHost()
    assert net.calls == calls
    torch.testing.assert_close(1 - net.w.detach(), v)  # the product is its own derivative
    if not is_random:
        assert v.tolist() == [{1: 1, 2: 2, 4: 24}[calls]] * 3


def test_a_branch_that_is_not_taken():
    net = Net(_branch, False)
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=1.0))
    model.compile(torch.ones(3))
    net.calls = 0
    v, _ = model(-torch.ones(3))
    model.copyWeightsToHost()
    assert net.calls == 0 and v.tolist() == [-5] * 3 and net.w.tolist() == [6] * 3


class Layouts(torch.nn.Module):
    """Several results that are not row-major, one without a gradient."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.arange(6.0).view(2, 3) / 10 + 0.1)
        self.host = poptorch.CPU(lambda v: (v.t() * 2, v[0], v.sum() > 0), "several")

    def forward(self, x):
        def body(v):
            h, row, flag = self.host(v)
            return [h.t() * h.t().sin() * 0.3 + row * flag
                    + h.as_strided((6,), (1,)).sin().view(2, 3) * 0.1]

        def squared(v):
            h, _, _ = self.host(v)
            return [(h * h).t() * 0.1 + h.as_strided((6,), (1,)).cos().view(2, 3)]

        v = poptorch.for_loop(3, body, [self.w * x])[0]
        v = poptorch.cond(x.sum() > 0, squared, [v], lambda v: [v], [v])[0]
        return v * 1, poptorch.identity_loss(v.sum(), "sum")


def test_results_that_are_kept_lie_in_memory_as_in_eager():
    net = Layouts()
    eager = copy.deepcopy(net)
    model = poptorch.trainingModel(net, quiet_options(deviceIterations=2),
                                   torch.optim.SGD(net.parameters(), lr=0.01))
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.01)
    v, _ = model(torch.ones(2))
    for _ in range(2):
        expected, loss = eager(torch.ones(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(v, expected)
    model.copyWeightsToHost()
    torch.testing.assert_close(net.w, eager.w)
