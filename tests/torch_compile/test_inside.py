"""Compiled models that a function of torch.compile calls: a graph ends there."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from poptorch._torch_compile.backend import backend
from tests.helpers import quiet_options

# Dynamo imports torch._inductor, and reads .grad of tensors between two graphs.
pytestmark = [pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated"),
              pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a")]


@pytest.mark.parametrize("inner", [backend, "eager"])
def test_executors(inner):
    net = nn.Linear(3, 2)
    model = poptorch.inferenceModel(net, quiet_options())
    run, x = torch.compile(lambda x: model(x * 2) + 1, backend=inner), torch.randn(4, 3)
    for _ in range(2):
        torch.testing.assert_close(run(x), net(x * 2).detach() + 1)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="poptorch compiles and runs a program"):
        torch.compile(lambda x: model(x), backend=inner, fullgraph=True)(x)


def test_training_models():
    net = nn.Linear(3, 2)
    eager, loss = copy.deepcopy(net), nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, quiet_options(), optimizer, loss=loss)
    run, x, y = torch.compile(lambda x, y: model(x * 2, y)[1], backend=backend), \
        torch.randn(4, 3), torch.randn(4, 2)
    torch.testing.assert_close(run(x, y), loss(eager(x * 2), y).detach())
    assert run(x, y) < loss(eager(x * 2), y)


@pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.AdamW(p, lr=0.01)])
def test_a_whole_step(make):
    """backward() and step() of the optimizer are calls of the compiled function."""
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
    eager = copy.deepcopy(net)

    def step_of(module):
        optimizer = make(module.parameters())

        def step(x):
            loss = module(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    run, expected = torch.compile(step_of(net), backend=backend, options=quiet_options()), \
        step_of(eager)
    for _ in range(4):
        x = torch.randn(6, 4)
        torch.testing.assert_close(run(x), expected(x))
    torch.testing.assert_close(net.state_dict(), eager.state_dict())


def test_gradients_in_a_function():
    def penalty(x):
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(x.tanh().sum(), x, create_graph=True)
        return gradient.square().sum()

    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(penalty, backend=backend)(x), penalty(x))


def test_the_step_of_an_optimizer():
    net = nn.Linear(4, 4)
    eager = copy.deepcopy(net)
    optimizers = [torch.optim.Adam(module.parameters(), lr=0.01) for module in (net, eager)]
    run = torch.compile(optimizers[0].step, backend=backend, options=quiet_options())
    for rows in (1, 2, 3):
        x = torch.randn(rows, 4)
        for module, optimizer, step in zip((net, eager), optimizers, (run, optimizers[1].step)):
            optimizer.zero_grad()
            module(x).square().sum().backward()
            step()
    torch.testing.assert_close(net.state_dict(), eager.state_dict())
