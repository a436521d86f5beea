"""How gradients of micro-batches and replicas become one, compared with a PyTorch loop doing the
same: docs/guide/training/training.md has the formulas."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import check_narrow, quiet_options

STRATEGIES = poptorch.MeanReductionStrategy
CASES = [(True, strategy) for strategy in STRATEGIES] + [(False, STRATEGIES.Post)]
LR = 2.0**-6  # sums over 16 micro-batches are small steps too: in large ones roundings grow

pytestmark = pytest.mark.filterwarnings("ignore:.*PostAndLoss is deprecated")


class Net(nn.Module):
    """Two layers whose loss is a mean, or a sum, over the micro-batch."""

    def __init__(self, reduction="mean"):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
        self.loss = nn.MSELoss(reduction=reduction)

    def forward(self, x, target):
        return self.loss(self.layers(x), target)


def options_of(mean, strategy, accumulation, replicas):
    options = quiet_options(replicationFactor=replicas)
    options.Training.gradientAccumulation(accumulation)
    options.Training.accumulationAndReplicationReductionType(
        poptorch.ReductionType.Mean if mean else poptorch.ReductionType.Sum)
    options.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
    return options


def looped(net, batches, mean, strategy, accumulation, replicas):
    """Weights after steps of stochastic gradient descent, each written out as the loops that it
    is: replicas hold a sum for each weight, micro-batches add to it, an exchange adds the sums."""
    each = {STRATEGIES.Running: accumulation, STRATEGIES.PostAndLoss: replicas}.get(strategy, 1)
    last = {STRATEGIES.Running: replicas, STRATEGIES.PostAndLoss: accumulation}.get(
        strategy, accumulation * replicas)
    each, last = (each, last) if mean else (1, 1)
    for x, target in batches:
        micro = list(zip(x.chunk(replicas * accumulation), target.chunk(replicas * accumulation)))
        sums = [[torch.zeros_like(p) for p in net.parameters()] for _ in range(replicas)]
        for number, arguments in enumerate(micro):
            gradients = torch.autograd.grad(net(*arguments), list(net.parameters()))
            for total, gradient in zip(sums[number // accumulation], gradients):
                total += gradient / each
        with torch.no_grad():
            for p, *of_replicas in zip(net.parameters(), *sums):
                p -= LR * sum(of_replicas) / last
    return dict(net.named_parameters())


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("accumulation", [1, 3, 4])
@pytest.mark.parametrize(("mean", "strategy"), CASES)
def test_weights_are_those_of_the_loop(mean, strategy, accumulation, replicas):
    net = Net()
    size = 2 * accumulation * replicas
    batches = [(torch.randn(size, 4), torch.randn(size, 3)) for _ in range(3)]
    settings = mean, strategy, accumulation, replicas
    eager, wide = copy.deepcopy(net), copy.deepcopy(net).double()
    model = poptorch.trainingModel(net, options_of(*settings),
                                   torch.optim.SGD(net.parameters(), lr=LR))
    for batch in batches:
        model(*batch)
    expected = looped(eager, batches, *settings)
    reference = looped(wide, [(x.double(), t.double()) for x, t in batches], *settings)
    check_narrow(dict(model.named_parameters()), [expected], reference)


@pytest.mark.parametrize(("accumulation", "replicas"), [(4, 1), (3, 2)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_mean_is_one_step_on_the_whole_batch(strategy, accumulation, replicas):
    """And a sum of sums is a sum over the whole batch."""
    for mean, reduction in ((True, "mean"), (False, "sum")):
        net = Net(reduction)
        whole = copy.deepcopy(net)
        size = 2 * accumulation * replicas
        x, target = torch.randn(size, 4), torch.randn(size, 3)
        model = poptorch.trainingModel(net, options_of(mean, strategy, accumulation, replicas),
                                       torch.optim.SGD(net.parameters(), lr=0.01))
        model(x, target)
        whole(x, target).backward()
        torch.optim.SGD(whole.parameters(), lr=0.01).step()
        for ours, theirs in zip(model.parameters(), whole.parameters()):
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


class Product(nn.Module):
    """Its gradient is its input."""

    def __init__(self, dtype):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(4, dtype=dtype))

    def forward(self, x):
        return poptorch.identity_loss(self.w * x, "sum")


@pytest.mark.parametrize(("strategy", "replicas", "is_finite"), [
    (STRATEGIES.Running, 1, True), (STRATEGIES.Running, 2, True), (None, 2, True),
    (STRATEGIES.Post, 1, False), (STRATEGIES.PostAndLoss, 1, False),
    (STRATEGIES.PostAndLoss, 2, False)])
def test_running_means_of_halves_do_not_overflow(strategy, replicas, is_finite):
    """Four gradients of 30,000 each add up to more than a float16 holds; their mean does not."""
    net = Product(torch.float16)
    options = quiet_options(replicationFactor=replicas)
    options.Training.gradientAccumulation(4)
    if strategy is not None:
        options.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=2.0**-10))
    model(torch.full((4 * replicas, 4), 30000.0, dtype=torch.float16))
    w = model.w.detach().float()
    assert w.isfinite().all() == is_finite
    if is_finite:
        torch.testing.assert_close(w, torch.full((4,), -30000 / 1024), rtol=2e-3, atol=0)
