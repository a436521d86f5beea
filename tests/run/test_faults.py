"""A fault at each step of a compilation and of a call: the next call is right."""

import copy
import functools

import pytest
import torch
from torch import nn

import poptorch
from poptorch import _C, executor
from poptorch._capture import capturing
from poptorch._device.device import Device
from poptorch._executor import translation
from poptorch._executor.attachment import Attachment
from poptorch._guards.guard import GuardSet
from poptorch._optimizer.device_states import DeviceStates
from poptorch._optimizer.link import OptimizerLink
from poptorch._runtime import call, device_memory, hooks, settings
from poptorch._runtime.arguments import Arguments
from poptorch._runtime.call import Call
from poptorch._runtime.compiled import CompiledModel
from poptorch._weights import link, values
from poptorch._weights.link import WeightLink
from poptorch._weights.store import WeightStore
from tests.helpers import Cases, quiet_options

# What is called, in this order; a step that is never reached fails the test.
STEPS = [
    (hooks, "before_compile"), (WeightLink, "pull_to_host"),
    (Device, "compiling"), (settings, "step_spec"), (translation, "Arguments"),
    (Arguments, "micro_batch"), (translation, "capture"), (capturing.Losses, "final"),
    (capturing, "functionalize"), (capturing._Capture, "_assemble"),
    (settings, "check_buffers"), (translation, "translate"), (_C, "compile"),
    (executor, "Interface"), (Device, "take"), (CompiledModel, "of"), (OptimizerLink, "compiled"),
    (WeightLink, "join"), (link, "spread"), (WeightStore, "join"), (values, "upload"),
    (_C.Executable, "write_state"), (hooks, "after_compile"),
    (Arguments, "match"), (GuardSet, "check"),
    (WeightLink, "before_run"), (OptimizerLink, "before_run"), (DeviceStates, "write"),
    (Call, "run"), (_C.Executable, "run"), (call, "write_back"),
    (WeightLink, "note_run"),
]


# Likewise, of letting go of the device and of the call that takes it again.
DEVICE_STEPS = [
    (WeightLink, "to_host"), (WeightStore, "fetch"), (WeightLink, "forget"),
    (WeightStore, "detach"), (device_memory, "release"), (_C.Executable, "is_same_in_replicas"),
    (_C.Executable, "release"), (Device, "release"),
    (Attachment, "_attach"), (GuardSet, "are_tensors_fit"), (Device, "take"),
    (device_memory, "restore"), (_C.Executable, "has_state"), (_C.Executable, "restore"),
    (WeightLink, "join"), (link, "spread"), (WeightStore, "join"), (values, "upload"),
    (_C.Executable, "write_state"),
]


class Fault(Exception):
    """What is raised."""


class Net(nn.Module):
    """Changes its input, has a buffer, and an optimizer with a state."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x, target):
        y = self.last(self.first(x * 1).tanh())
        x.add_(1)
        return y, nn.functional.mse_loss(y, target)


def sgd(net):
    return torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)


def with_fault(monkeypatch, owner, name, is_after):
    """Makes the next call of a function raise; returns a list that has an item then."""
    found, raised = owner.__dict__[name], []
    function = found.__func__ if isinstance(found, classmethod) else found

    @functools.wraps(function, updated=())
    def faulty(*args, **kwargs):
        if raised:
            return function(*args, **kwargs)
        if is_after:
            function(*args, **kwargs)
        raised.append(1)
        raise Fault

    monkeypatch.setattr(owner, name,
                        classmethod(faulty) if isinstance(found, classmethod) else faulty)
    return raised


def check(monkeypatch, owner, name, is_after, is_compiled):
    net = Net()
    eager = copy.deepcopy(net)
    model, optimizer = poptorch.trainingModel(net, quiet_options(), sgd(net)), sgd(eager)
    target = torch.rand(3, 2)

    def step():
        x = torch.rand(3, 4)
        out, loss = eager(x.clone(), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return x, out.detach()

    if is_compiled:
        x, _ = step()
        model(x, target)
    with monkeypatch.context() as patch:
        raised = with_fault(patch, owner, name, is_after)
        before = copy.deepcopy(eager.state_dict()), copy.deepcopy(optimizer.state_dict())
        x, _ = step()
        try:
            model(x, target)
            assert not raised, "the fault was lost"
            return False
        except Fault:
            pass
        if torch.allclose(net.first.weight, before[0]["first.weight"], rtol=0, atol=1e-7):
            eager.load_state_dict(before[0])
            optimizer.load_state_dict(before[1])
    for _ in range(2):
        x, expected = step()
        torch.testing.assert_close(model(x, target)[0], expected)
    torch.testing.assert_close(dict(net.state_dict()), dict(eager.state_dict()))
    return True


@pytest.mark.sampled
def test_a_fault_at_each_step(monkeypatch):
    reached = {}
    with Cases() as cases:
        for owner, name in STEPS:
            # The note that the device has newer weights: lost, where it cannot be made at all.
            for is_after in (False, True) if name != "note_run" else (True,):
                for is_compiled in (False, True):
                    words = owner.__name__, name, "after" if is_after else "before", is_compiled
                    with cases.case(*words):
                        hit = check(monkeypatch, owner, name, is_after, is_compiled)
                        reached[owner, name] = reached.get((owner, name), False) or hit
    assert [step for step in STEPS if not reached.get(step)] == []


def check_device(monkeypatch, owner, name, is_after):
    net = Net()
    eager = copy.deepcopy(net)
    model, optimizer = poptorch.trainingModel(net, quiet_options(), sgd(net)), sgd(eager)

    def step():
        x, target = torch.rand(3, 4), torch.rand(3, 2)
        out, loss = eager(x.clone(), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(model(x, target)[0], out.detach())

    step()
    with monkeypatch.context() as patch:
        raised = with_fault(patch, owner, name, is_after)
        for use in (model.detachFromDevice, model.attachToDevice):
            try:
                use()
            except Fault:
                pass
            except poptorch.Error as error:  # the device is gone, or is there, nevertheless
                assert raised and "attached" in str(error)
    torch.testing.assert_close(dict(net.state_dict()), dict(eager.state_dict()))
    for _ in range(2):
        step()
        if model.isAttachedToDevice():
            model.detachFromDevice()
    torch.testing.assert_close(dict(net.state_dict()), dict(eager.state_dict()))
    return bool(raised)


def test_a_fault_at_each_step_of_detaching_and_attaching(monkeypatch):
    reached = set()
    with Cases() as cases:
        for owner, name in DEVICE_STEPS:
            for is_after in (False, True):
                with cases.case(owner.__name__, name, "after" if is_after else "before"):
                    if check_device(monkeypatch, owner, name, is_after):
                        reached.add((owner, name))
    assert [step for step in DEVICE_STEPS if step not in reached] == []
