"""Parameters that a function of the host uses by itself: their gradients are those of eager."""

import copy
import warnings

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

MEAN, SUM = poptorch.ReductionType.Mean, poptorch.ReductionType.Sum


class Net(torch.nn.Module):
    """Of which ``host`` is no part: nothing of it is on the device."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.fc = torch.nn.Linear(3, 3, dtype=dtype)
        self.parts = [torch.nn.Linear(3, 2, dtype=dtype)]
        self.call = poptorch.CPU(self.parts[0], "host")

    @property
    def host(self):
        return self.parts[0]

    def forward(self, x):
        return poptorch.identity_loss(self.call(self.fc(x)).pow(2).sum(), "none")


def wrapped(net, accumulation=1, replicas=1, kind=MEAN, automatic=False, **settings):
    options = quiet_options(replicationFactor=replicas)
    options.Training.gradientAccumulation(accumulation)
    options.Training.accumulationAndReplicationReductionType(kind)
    options.Training.setAutomaticLossScaling(automatic)
    optimizer = poptorch.optim.SGD(net.fc.parameters(), lr=0.125, **settings)
    return poptorch.trainingModel(net, options, optimizer), optimizer


def check(net, eager):
    for ours, theirs in ((net.host, eager.host), (net.fc, eager.fc)):
        for a, b in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(a, b)
            if ours is net.host:
                torch.testing.assert_close(a.grad, b.grad)


def eager_step(eager, x, parts=1, kind=MEAN):
    optimizer = torch.optim.SGD(eager.fc.parameters(), lr=0.125)
    optimizer.zero_grad()
    for part in x.chunk(parts):
        (eager(part) / (parts if kind is MEAN else 1)).backward()
    optimizer.step()


@pytest.mark.parametrize("scale", [1.0, 16.0, 3.0])
@pytest.mark.parametrize("kind", [MEAN, SUM])
@pytest.mark.parametrize("accumulation, replicas", [(1, 1), (3, 1), (1, 2), (2, 2)])
def test_their_gradients_are_those_of_the_whole_loss(accumulation, replicas, kind, scale):
    net, parts = Net(), accumulation * replicas
    eager = copy.deepcopy(net)
    model, _ = wrapped(net, accumulation, replicas, kind, loss_scaling=scale)
    for _ in range(2):  # they are added up
        x = torch.randn(2 * parts, 3) / 4
        model(x)
        eager_step(eager, x, parts, kind)
    check(net, eager)


@pytest.mark.parametrize("strategy", poptorch.MeanReductionStrategy)
def test_every_way_of_the_mean(strategy):
    net = Net()
    eager = copy.deepcopy(net)
    options = quiet_options(replicationFactor=2)
    options.Training.gradientAccumulation(2)
    with warnings.catch_warnings():  # one of them is deprecated
        warnings.simplefilter("ignore", DeprecationWarning)
        options.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.fc.parameters(), lr=0.125))
    x = torch.randn(8, 3) / 4
    model(x)
    eager_step(eager, x, 4)
    check(net, eager)


def test_a_loss_scale_that_changes():
    net = Net()
    eager = copy.deepcopy(net)
    model, optimizer = wrapped(net, loss_scaling=16.0)
    for scale in (16.0, 256.0, 1.0):
        optimizer.loss_scaling = scale
        model.setOptimizer(optimizer)
        x = torch.randn(2, 3) / 4
        model(x)
        eager_step(eager, x)
    check(net, eager)


def test_of_half_precision():
    """The scale is there for the gradients of the device, which are not divided on the way."""
    net = Net(torch.float16)
    with torch.no_grad():
        for parameter, value in zip([*net.fc.parameters(), *net.host.parameters()],
                                    (0.0, 0.5, 2.0**-13, 0.0)):
            parameter.fill_(value)
    options = quiet_options().anchorTensor("gradient", "Gradient___fc.bias")
    optimizer = poptorch.optim.SGD(net.fc.parameters(), lr=0.0, loss_scaling=2.0**15)
    model = poptorch.trainingModel(net, options, optimizer)
    model(torch.ones(1, 3, dtype=torch.float16))
    # Between the smallest numbers of float16, 2**-24 and 2**-23.
    found = model.getAnchoredTensor("gradient").float()
    assert torch.equal(found, torch.full((3,), 1.5 * 2.0**-24))
    assert torch.equal(net.host.bias.grad, torch.full((2,), 3 * 2.0**-13).half())


def test_hooks_see_what_is_added():
    net, seen = Net(), []
    eager = copy.deepcopy(net)
    net.host.bias.register_hook(lambda gradient: seen.append(gradient.clone()))
    net.host.bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    model, _ = wrapped(net, loss_scaling=64.0)
    x = torch.randn(2, 3) / 4
    model(x)
    eager_step(eager, x)
    assert len(seen) == 2
    for gradient in seen:
        torch.testing.assert_close(gradient, eager.host.bias.grad)


def test_an_automatic_loss_scale_is_refused():
    words = (r"\[CPU\] 'host' has parameters of its own that require grad, and the factor of "
             r"Training.setAutomaticLossScaling\(True\), by which .* is not known on the host. Set "
             r"requires_grad of them to False")
    net = Net()
    model, _ = wrapped(net, automatic=True)
    with pytest.raises(poptorch.Error, match=words):
        model(torch.ones(2, 3))
    net.host.requires_grad_(False)
    assert model(torch.ones(2, 3)) > 0


def test_a_gradient_within_forward_changes_none():
    """torch.autograd.grad adds to no ``grad``."""
    class Twice(Net):
        def forward(self, x):
            y = self.call(self.fc(x))
            gradient, = torch.autograd.grad(y.sum(), self.fc.bias, retain_graph=True)
            return gradient, poptorch.identity_loss(y.pow(2).sum(), "none")

    net = Twice()
    eager = copy.deepcopy(net)
    model, _ = wrapped(net, loss_scaling=16.0)
    x = torch.randn(2, 3) / 4
    found, loss = model(x)
    expected, whole = eager(x)
    whole.backward()
    torch.testing.assert_close((found, loss), (expected, whole.detach()))
    torch.testing.assert_close(net.host.weight.grad, eager.host.weight.grad)


def test_in_a_loop():
    class Loop(Net):
        def forward(self, x):
            def body(y):
                return torch.cat([self.call(y), y[:, :1]], 1)

            y, = poptorch.for_loop(3, lambda y: [body(y)], [self.fc(x)])
            return poptorch.identity_loss(y.pow(2).sum(), "none")

    net = Loop()
    eager = copy.deepcopy(net)
    model, _ = wrapped(net, loss_scaling=16.0)
    x = torch.randn(2, 3) / 4
    model(x)
    y = eager.fc(x)
    for _ in range(3):
        y = torch.cat([eager.call(y), y[:, :1]], 1)
    y.pow(2).sum().backward()
    torch.testing.assert_close(net.host.weight.grad, eager.host.weight.grad)
