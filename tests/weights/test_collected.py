"""Executors that the garbage collector finds, wherever it runs."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, in_kernel_invocation_manager
from torch.utils._python_dispatch import TorchDispatchMode

import poptorch
from tests.helpers import quiet_options


class Loss(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return poptorch.identity_loss(self.net(x).square().mean(), "none")


def within_a_rule(work):
    """As where torch finds out what an operation gives for tensors without values."""
    with in_kernel_invocation_manager(FakeTensorMode()):
        work()


def within_a_mode(work):
    class Working(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            work()
            return func(*args, **(kwargs or {}))

    with Working():
        torch.ones(2) + 1


def within_a_capture(work):
    class Net(nn.Module):
        def forward(self, x):
            work()
            return x + 1

    poptorch.inferenceModel(Net(), quiet_options())(torch.ones(2))


@pytest.mark.parametrize("within", [within_a_rule, within_a_mode, within_a_capture])
def test_what_it_trained_stays(within):
    net = nn.Linear(2, 2)
    loss = Loss(net)
    eager = copy.deepcopy(loss)
    optimizers = [torch.optim.SGD(one.parameters(), 0.1, momentum=0.9) for one in (loss, eager)]
    x = torch.rand(3, 2)
    model = poptorch.trainingModel(loss, quiet_options(), optimizers[0])
    for _ in range(2):
        model(x)
        optimizers[1].zero_grad()
        eager(x).backward()
        optimizers[1].step()
    held = [model]
    del model

    def forget():
        held.clear()
        gc.collect()

    within(forget)
    torch.testing.assert_close(dict(net.named_parameters()), dict(eager.net.named_parameters()))
    states = [[state["momentum_buffer"] for state in one.state.values()] for one in optimizers]
    torch.testing.assert_close(*states)
