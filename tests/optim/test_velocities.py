"""Velocities that gradients are combined with: ``velocity_scaling`` is the device's alone."""

import copy

import pytest
import torch

import poptorch
from tests.helpers import quiet_options
from tests.optim.common import Outer, written

SETTINGS = {"lr": 0.25, "momentum": 0.5, "weight_decay": 0.125}


class Net(torch.nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=dtype))

    def forward(self, x):
        return poptorch.identity_loss((self.weight * x).square().sum(), "none")


X = torch.tensor([0.5, 0.25, 1.0])


def combined(net, scale=4.0, **more):
    return poptorch.optim.SGD(net.parameters(), use_combined_accum=True, velocity_scaling=scale,
                              **SETTINGS, **more)


class Pair:
    """A net on the device, and the same in eager mode; their velocities are those of PyTorch."""

    def __init__(self, scale=4.0):
        self.net, self.eager = Net(), Net()
        self.optimizer = combined(self.net, scale)
        self.reference = torch.optim.SGD(self.eager.parameters(), **SETTINGS)
        self.model = self.wrapped()

    def wrapped(self):
        return poptorch.trainingModel(self.net, quiet_options(), self.optimizer)

    def train(self, steps=1):
        for _ in range(steps):
            self.model(X)
            self._step(self.eager, self.reference)

    def step_on_the_host(self):
        self._step(self.net, self.optimizer)
        self._step(self.eager, self.reference)
        self.model.copyWeightsToDevice()

    def _step(self, net, optimizer):
        optimizer.zero_grad()
        net(X).backward()
        optimizer.step()
        optimizer.zero_grad()

    def velocity(self):
        return self.optimizer.state[self.net.weight]["momentum_buffer"]

    def check(self):
        torch.testing.assert_close(self.net.weight.detach(), self.eager.weight.detach())
        expected = self.reference.state[self.eager.weight]["momentum_buffer"]
        torch.testing.assert_close(self.velocity(), expected)
        shown = self.optimizer.state_dict()
        name, = (name for name in shown["ipu_state"] if name.startswith("Accl1___"))
        scale = self.optimizer.velocity_scaling
        torch.testing.assert_close(shown["ipu_state"][name], expected * scale)
        name = name.replace("Accl1___", "velocityScaling___specific___")
        assert shown["ipu_param"][name] == scale


def test_the_state_is_that_of_torch():
    pair = Pair()
    for _ in range(2):
        pair.train(2)
        pair.check()
        pair.step_on_the_host()
        pair.check()


def test_a_state_of_torch():
    pair = Pair()
    pair._step(pair.eager, pair.reference)
    pair.net.load_state_dict(pair.eager.state_dict())
    pair.optimizer.load_torch_state_dict(copy.deepcopy(pair.reference.state_dict()))
    pair.train(2)
    pair.check()


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("how", ["attribute", "another"])
def test_a_scale_that_changes(how, looks):
    pair = Pair()
    for scale in (8.0, 0.5, 3.0):
        pair.train(2)
        if looks:
            pair.check()
        if how == "another":
            former, kept = pair.optimizer, copy.deepcopy(pair.reference.state_dict()["state"])
            pair.optimizer = combined(pair.net, scale)
        pair.optimizer.velocity_scaling = scale
        pair.model.setOptimizer(pair.optimizer)
        pair.train(1)
        pair.check()
        if how == "another":  # which keeps what it had
            found = former.state_dict()["state"][0]["momentum_buffer"]
            torch.testing.assert_close(found, kept[0]["momentum_buffer"])


def test_a_scale_that_is_not_sent_yet():
    """A look between its change and setOptimizer() writes what fits to the scale of the program."""
    pair = Pair()
    pair.train(2)
    pair.optimizer.velocity_scaling = 32.0
    assert pair.velocity() is not None
    pair.train(1)
    pair.model.setOptimizer(pair.optimizer)
    pair.train(1)
    pair.check()


def test_executors_with_scales_of_their_own():
    """The parameter is the same; each program has the scale of the optimizer when it was sent."""
    pair = Pair()
    pair.train(2)
    pair.optimizer.velocity_scaling = 16.0
    other = poptorch.trainingModel(Outer(pair.net), quiet_options(), pair.optimizer)
    for model in (other, pair.model, other):
        model(X)
        pair._step(pair.eager, pair.reference)
        pair.check()


@pytest.mark.parametrize("scale", [1.0, 4.0, 64.0])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_state_that_was_saved_with_another_scale(scale, when):
    pair = Pair()
    pair.train(2)
    state = written(pair.optimizer.state_dict())
    pair.model.destroy()
    pair.optimizer = combined(pair.net, scale)
    if when == "after":
        pair.model = pair.wrapped()
        pair.model.compile(X)
    pair.optimizer.load_state_dict(state)
    if when == "before":
        found, saved = (s["ipu_state"]["Accl1___weight"]
                        for s in (pair.optimizer.state_dict(), state))
        before = state["ipu_param"]["velocityScaling___specific___weight"]
        torch.testing.assert_close(found, saved * scale / before)  # as the next run has it
        pair.model = pair.wrapped()
    pair.train(2)
    pair.check()


@pytest.mark.parametrize("loads", [False, True], ids=["load", "loadExecutable"])
def test_files(tmp_path, loads):
    """A program of a file has the scale that it was saved with."""
    pair = Pair()
    pair.train(2)
    path = pair.model.save(tmp_path / "net.poptorch")
    pair.model.destroy()
    if loads:
        pair.optimizer = combined(pair.net, 32.0)
        pair.model = pair.wrapped()
        pair.model.loadExecutable(path)
    else:
        pair.model = poptorch.load(path)
        pair.net, pair.optimizer = pair.model.model, pair.model._optimizer.optimizer
    pair.train(2)
    pair.check()


def test_a_file_between_a_change_and_its_call(tmp_path):
    pair = Pair()
    pair.train(2)
    pair.optimizer.velocity_scaling = 16.0
    pair.model.setOptimizer(pair.optimizer)
    pair.model = poptorch.load(pair.model.save(tmp_path / "net.poptorch"))
    pair.net, pair.optimizer = pair.model.model, pair.model._optimizer.optimizer
    pair.train(2)
    pair.check()


def test_velocities_of_half_precision_lose_nothing():
    """Times 2**12 they are numbers of float16, without the factor most of them are not."""
    net = Net(torch.float16)
    optimizer = combined(net, 2.0**12)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    x = torch.tensor([2.0**-9, 3 * 2.0**-10, 5 * 2.0**-10], dtype=torch.float16)
    with torch.no_grad():
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.0
    model(x)
    kept = optimizer.state_dict()["ipu_state"]["Accl1___weight"]
    velocity = optimizer.state[net.weight]["momentum_buffer"]
    assert velocity.dtype is torch.float32 and torch.equal(velocity * 2**12, kept.float())
    optimizer.param_groups[0].update(lr=0.0, momentum=1.0, dampening=0.0)
    model(torch.zeros(3, dtype=torch.float16))
    assert torch.equal(optimizer.state_dict()["ipu_state"]["Accl1___weight"], kept)
