"""Weights are read, and models called, while torch records, transforms or counts operations."""

import copy

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize, grad, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import poptorch
from tests.helpers import quiet_options

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit")
X = torch.tensor([[1.0, -0.5], [0.25, 0.75], [0.5, 2.0]])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        y = self.layer(x)
        return y, poptorch.identity_loss((y * y).mean(), "none")


class Operations(TorchDispatchMode):
    """The names of all operations."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


class Trained:
    """A model after two steps that the host does not have; and eager's."""

    def __init__(self):
        self.net = Net()
        self.eager = copy.deepcopy(self.net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.1)
        self.eager_optimizer = torch.optim.Adam(self.eager.parameters(), lr=0.1)
        self.model = poptorch.trainingModel(self.net, quiet_options(), self.optimizer)
        for _ in range(2):
            self.model(X)
            self.step_eager()

    def step_eager(self):
        self.eager_optimizer.zero_grad()
        self.eager(X)[1].backward()
        self.eager_optimizer.step()

    def check(self):
        for ours, eager in zip(self.net.parameters(), self.eager.parameters()):
            torch.testing.assert_close(ours, eager)


@pytest.fixture
def trained():
    return Trained()


READERS = {
    "trace": lambda layer: torch.jit.trace(layer, X)(X),
    "grad": lambda layer: grad(lambda x: layer(x).square().sum())(X),
    "jvp": lambda layer: jvp(layer, (X,), (X,))[1],
    "vmap": lambda layer: vmap(layer)(X),
    "functionalize": lambda layer: functionalize(layer)(X),
}


@pytest.mark.parametrize("name", READERS)
def test_transformed_functions_read_what_was_trained(trained, name):
    found = READERS[name](trained.net.layer)
    torch.testing.assert_close(found, READERS[name](trained.eager.layer))
    trained.check()


def test_a_trace_holds_nothing_but_the_users_operations(trained):
    text = str(torch.jit.trace(trained.net.layer, X, check_trace=False).graph)
    assert "aten::linear" in text and "copy_" not in text and "empty" not in text


@pytest.mark.parametrize("enter", [
    lambda: FakeTensorMode(allow_non_fake_inputs=True), lambda: torch.device("meta")],
    ids=["fake", "meta"])
def test_reading_among_modes_that_make_no_values(trained, enter):
    with enter():
        trained.net.layer.weight.sum()
        state = trained.optimizer.state[trained.net.layer.weight]
    torch.testing.assert_close(dict(state), dict(
        trained.eager_optimizer.state[trained.eager.layer.weight]))
    trained.check()


def test_a_mode_sees_the_users_operations_alone(trained):
    with Operations() as mode:
        trained.net.layer(X)
    assert "copy_" not in mode.names and "addmm" in mode.names


@pytest.mark.parametrize("enter", [lambda: torch.device("meta"), Operations],
                         ids=["meta", "operations"])
@pytest.mark.parametrize("is_first", [True, False])
def test_calls_among_modes(enter, is_first):
    trained = Trained()
    if is_first:
        trained.model.destroy()
    validation = poptorch.inferenceModel(trained.net.layer, quiet_options())
    with enter():
        trained.model(X)
        found = validation(X)
    trained.step_eager()
    torch.testing.assert_close(found, trained.eager.layer(X).detach())
    trained.check()


RECORDERS = {
    "torch.jit.trace": lambda f: torch.jit.trace(f, X, check_trace=False),
    "torch.func": lambda f: grad(lambda x: f(x).sum())(X),
    "make_fx": lambda f: make_fx(f)(X),
    "FakeTensorMode": lambda f: _in_fake_mode(f),
}


def _in_fake_mode(function):
    with FakeTensorMode(allow_non_fake_inputs=True):
        return function(X)


@pytest.mark.parametrize("name", RECORDERS)
@pytest.mark.parametrize("is_first", [True, False])
def test_calls_that_would_be_left_out_of_a_recording(name, is_first):
    net = nn.Linear(2, 2)
    model = poptorch.inferenceModel(net, quiet_options())
    if not is_first:
        model(X)
    for call in (lambda x: x * model(X).sum(), lambda x: (model.compile(X), x)[1]):
        with pytest.raises(poptorch.Error, match=f"a compiled model computes.*{name}.*outside"):
            RECORDERS[name](call)
    torch.testing.assert_close(model(X), net(X).detach())
