"""Executors that share storages, in any order of wrapping: whose values each computes with."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options

X, T = torch.cos(torch.arange(24.0) * 1.7).reshape(6, 4), torch.ones(6, 3)
RATE = 0.1


class WithLoss(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, target):
        y = self.net(x)
        return y, nn.functional.mse_loss(y, target)


def make_net():
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))


def training(module, **options):
    return poptorch.trainingModel(module, quiet_options(**options),
                                  torch.optim.SGD(module.parameters(), lr=RATE))


def inference(module):
    return poptorch.inferenceModel(module, quiet_options())


def eager_step(module, *args):
    module.zero_grad()
    _, loss = module(*args)
    loss.backward()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter -= RATE * parameter.grad


def close(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


WRAPPED = {
    "validation first": lambda net: (inference(net.eval()), training(WithLoss(net.train()))),
    "training first": lambda net: (training(WithLoss(net.train())), inference(net.eval()))[::-1],
}


@pytest.mark.parametrize("is_seen_before", [True, False], ids=["compiled before", "after"])
@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_validation_sees_training_of_a_module_around_its_own(wrap, is_seen_before):
    net = make_net()
    eager = WithLoss(copy.deepcopy(net))
    validated, trained = wrap(net)
    if is_seen_before:
        close(validated(X), eager.net.eval()(X).detach())
    for _ in range(3):
        trained(X, T)
        eager_step(eager.train(), X, T)
        close(validated(X), eager.net.eval()(X).detach())


def test_validation_sees_training_of_a_part_of_its_module():
    net = make_net()
    around = nn.Sequential(net, nn.Linear(3, 2))
    eager = copy.deepcopy(around)
    validated, trained = inference(around.eval()), training(WithLoss(net.train()))
    for _ in range(2):
        close(validated(X), eager.eval()(X).detach())
        trained(X, T)
        eager_step(WithLoss(eager[0]).train(), X, T)
    close(validated(X), eager.eval()(X).detach())


def test_copying_from_validation_does_not_undo_training():
    net = make_net()
    eager = WithLoss(copy.deepcopy(net))
    trained = training(WithLoss(net))
    validated = inference(net)
    validated(X)
    for _ in range(4):
        _, loss = trained(X, T)
        close(loss, eager(X, T)[1].detach())
        eager_step(eager, X, T)
        validated.copyWeightsToHost()
    for ours, theirs in zip(net.parameters(), eager.net.parameters()):
        close(ours, theirs)


class Generated(nn.Module):
    """The loss of a generator, or of a discriminator, by way of both."""

    def __init__(self, generator, discriminator, sign):
        super().__init__()
        self.generator, self.discriminator, self.sign = generator, discriminator, sign

    def forward(self, x):
        y = self.discriminator(self.generator(x))
        return y, poptorch.identity_loss((y - self.sign).square().mean(), "none")


@pytest.mark.parametrize("ends", [None, 0, 1])
def test_two_trainings_share_networks(ends):
    nets = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 3)])
    twins = copy.deepcopy(nets)
    ours, theirs = ([Generated(*both, sign) for sign in (1.0, -1.0)] for both in (nets, twins))
    wrapped = [
        poptorch.trainingModel(ours[0], quiet_options(),
                               torch.optim.SGD(ours[0].generator.parameters(), lr=RATE)),
        poptorch.trainingModel(ours[1], quiet_options(),
                               torch.optim.Adam(ours[1].discriminator.parameters(), lr=RATE))]
    eager = [torch.optim.SGD(theirs[0].generator.parameters(), lr=RATE),
             torch.optim.Adam(theirs[1].discriminator.parameters(), lr=RATE)]
    held = nets[0].weight
    for step in range(6):
        if step == 3 and ends is not None:
            wrapped[ends].destroy()
        for number in (0, 1):
            close(wrapped[number](X)[1], theirs[number](X)[1].detach())
            twins.zero_grad()
            theirs[number](X)[1].backward()
            eager[number].step()
            if step >= 3:
                close(held, twins[0].weight)
    for one, other in zip(nets.parameters(), twins.parameters()):
        close(one, other)


def test_destroying_one_leaves_the_watch_of_the_other():
    net = nn.Linear(4, 3)
    first, second = training(WithLoss(net)), training(WithLoss(net))
    held, plain = net.weight, net.weight.detach().clone()
    first(X, T)
    first.destroy()
    second(X, T)
    assert not torch.equal(held, plain)
    before = held.detach().clone()
    second(X, T)
    assert not torch.equal(held, before)
    second.destroy()
    assert type(held) is nn.Parameter


def test_an_executor_that_was_forgotten_leaves_its_values():
    net = nn.Linear(4, 3)
    eager = WithLoss(copy.deepcopy(net))
    validated = inference(net)
    validated(X)
    trained = training(WithLoss(net))
    trained(X, T)
    eager_step(eager, X, T)
    del trained
    gc.collect()
    close(validated(X), eager.net(X).detach())
    close(net.weight, eager.net.weight)


def test_a_forgotten_model_frees_its_device():
    net = nn.Linear(4, 3)
    trained = training(WithLoss(net))
    trained(X, T)
    executable = weakref.ref(trained._weights._programs[trained._programs.current])
    del trained, net
    gc.collect()
    assert executable() is None


def test_destroying_one_keeps_what_a_forgotten_one_has_trained():
    """Reading the tensor asks for that no more, as nothing watches it afterwards."""
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, *args):
            return self.inner(*args)

    inner = WithLoss(make_net())
    model, other = training(inner), training(Outer())
    expected = copy.deepcopy(inner)
    eager_step(expected, X, T)
    other(X, T)
    del other
    gc.collect()
    model.destroy()
    close(inner.net[0].weight.detach(), expected.net[0].weight.detach())
