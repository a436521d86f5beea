"""Several programs of one executor share weights, optimizer state and random state."""

import copy
import time

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options

SHAPE = (8, 6)


class Net(nn.Module):
    """Has random numbers, buffers that differ between replicas, and weights."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)

    def forward(self, x, target):
        y = self.last(nn.functional.dropout(self.norm(self.first(x)), 0.5))
        return y, nn.functional.mse_loss(y, target)


def wrapped(net):
    options = quiet_options(replicationFactor=2, broadcastBuffers=False, randomSeed=7)
    return poptorch.trainingModel(net, options, torch.optim.Adam(net.parameters(), 0.01))


def batch():
    return torch.rand(SHAPE), torch.rand(8, 2)


def add_program(model, *args):
    model._programs.add(model._build(model._options, args, {}, lambda step: None),
                        time.monotonic(), "a test")


def pair():
    """An executor with one program, and one like it with two."""
    net = Net()
    model = wrapped(net)
    x = batch()
    single = wrapped(other := Net())
    other.load_state_dict(net.state_dict())
    for one in (single, model):
        one(*x)
    add_program(model, *x)
    return single, model


def check_same(single, model):
    x = batch()
    expected, found = single(*x), model(*x)
    assert all(map(torch.equal, expected, found))


def check_states(single, model):
    torch.testing.assert_close(model.state_dict(), single.state_dict(), rtol=0, atol=0)
    expected, found = (one._optimizer.optimizer.state_dict() for one in (single, model))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert model.rng_state == single.rng_state


def test_programs_take_turns(seed):
    single, model = pair()
    programs = list(model._programs.all)
    assert model._programs.current is programs[1] and len(programs) == 2
    for step in range(6):
        check_same(single, model)
        model._programs.select(programs[step % 2])
        assert model._programs.current is programs[step % 2]
    check_states(single, model)


def test_a_device_is_taken_again_for_all():
    single, model = pair()
    first, second = model._programs.all
    model.detachFromDevice()
    assert not first.executable.has_memory and not second.executable.has_memory
    check_same(single, model)
    assert not first.executable.has_memory, "only the current one has memory until it is selected"
    model._programs.select(first)
    check_same(single, model)
    check_states(single, model)


def test_destroy_gives_all_up():
    single, model = pair()
    single.destroy()
    model.destroy()
    assert not model._programs.all and not model.isCompiled()
    torch.testing.assert_close(dict(model.model.state_dict()), dict(single.model.state_dict()))
    check_same(single, model)


def test_a_fault_of_a_change_leaves_nothing_compiled(monkeypatch):
    single, model = pair()
    first, _ = model._programs.all
    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr(model._optimizer, "select", lambda *_: (_ for _ in ()).throw(OSError()))
        model._programs.select(first)
    assert not model.isCompiled() and not model._programs.all
    torch.testing.assert_close(dict(model.model.state_dict()), dict(single.model.state_dict()))


def test_programs_of_inference_follow_training():
    net = Net()
    training, model = wrapped(net), poptorch.inferenceModel(net, quiet_options(randomSeed=7))
    x = batch()
    model(*x)
    add_program(model, *x)
    for program in model._programs.all:
        training(*x)
        model._programs.select(program)
        fresh = poptorch.inferenceModel(net, quiet_options(randomSeed=7))
        fresh.compile(*x)
        fresh.rng_state = model.rng_state
        assert all(map(torch.equal, model(*x), fresh(*x)))


class Squares(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return poptorch.identity_loss(self.layer(x).square(), "mean")


@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, 0.1, momentum=0.5),
                                  lambda p: torch.optim.Adam(p, 0.1)])
def test_programs_of_several_shapes_train_as_eager_does(make):
    net = Squares()
    eager = copy.deepcopy(net)
    optimizer, reference = make(net.parameters()), make(eager.parameters())
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    model.compile(torch.zeros(4, 3))
    add_program(model, torch.zeros(2, 3))
    programs = list(zip(model._programs.all, (4, 2)))
    for number in (0, 0, 1, 0, 1, 1):
        program, rows = programs[number]
        model._programs.select(program)
        x = torch.rand(rows, 3)
        loss = model(x)
        reference.zero_grad()
        expected = eager(x)
        expected.backward()
        reference.step()
        torch.testing.assert_close(loss, expected.detach())
    for state, expected in zip(optimizer.state.values(), reference.state.values()):
        torch.testing.assert_close(state, expected)


class Drops(nn.Module):
    """Draws random numbers for its first shape only, and counts in each replica."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.total += x.sum()
        return self.total + 0, torch.rand(3) if len(x) == 4 else torch.zeros(3)


def test_a_program_without_random_numbers_keeps_their_state():
    net = Drops()
    options = quiet_options(replicationFactor=2, broadcastBuffers=False, randomSeed=3)
    model = poptorch.inferenceModel(net, options)
    alone = poptorch.inferenceModel(copy.deepcopy(net), options.clone())
    inputs = [torch.arange(24.0).reshape(8, 3), torch.arange(12.0).reshape(4, 3)]
    model.compile(inputs[0])
    add_program(model, inputs[1])
    programs, total = list(model._programs.all), torch.zeros(2)
    for number in (0, 1, 1, 0):
        model._programs.select(programs[number])
        found, noise = model(inputs[number])
        total += inputs[number].reshape(2, -1).sum(1)
        torch.testing.assert_close(found, total)
        if number == 0:
            assert torch.equal(noise, alone(inputs[0])[1])
