"""CPU: which gradients there are of what a function of the host is given."""

import copy

import pytest
import torch

import poptorch
from tests.helpers import quiet_options
from tests.own.test_host import trained


def test_arguments_without_a_gradient():
    """A parameter that no result with a gradient depends on has none, and is not decayed."""
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
            self.host = poptorch.CPU(lambda a, b: (a * 2, a + b), "two")

        def forward(self, x):
            twice, total = self.host(self.a, self.b)
            return total, poptorch.identity_loss((twice * x).sum(), "none")

    net = Two()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.5)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    model(torch.ones(2))
    model.copyWeightsToHost()
    assert net.b.tolist() == [1, 1]
    torch.testing.assert_close(net.a.detach(), torch.full((2,), 1 - 0.1 * (2 + 0.5)))


def test_parameters_of_the_host_that_no_gradient_reaches():
    class Inputs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(2, 2)
            self.frozen = False

        def forward(self, x):
            with torch.set_grad_enabled(not self.frozen):
                features = poptorch.CPU(HOST, "features")(x)
            return poptorch.identity_loss(self.fc(features).sum(), "none")

    HOST, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    with pytest.raises(poptorch.Error, match=r"\[CPU\] 'features' has parameters of its own"):
        trained(Inputs())(x)
    net = Inputs()
    net.frozen = True
    expected = net(x)
    torch.testing.assert_close(trained(net)(x), expected)


def test_two_gradients_of_one_call():
    """One within forward, and that of the loss: both read what the call has kept."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.rand(3) + 0.1)

        def forward(self, x):
            y = poptorch.CPU(lambda a: a.sin() * a, "twice")(self.w * x)
            gradient, = torch.autograd.grad(y.sum(), self.w, retain_graph=True)
            return gradient, poptorch.identity_loss(y.pow(2).sum(), "none")

    net, x = Net(), torch.rand(3)
    model = trained(net)
    expected, loss = net(x)
    for _ in range(2):
        gradient, ours = model(x)
        torch.testing.assert_close((gradient, ours), (expected, loss.detach()))
        expected, loss = net(x)


class Hooked(torch.nn.Module):
    """A function of the host of several results, of which each depends on some arguments."""

    def __init__(self, result: int):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        self.u = torch.nn.Parameter(torch.tensor([3.0]))
        self.u.register_hook(lambda gradient: gradient * 3)
        self.host = poptorch.CPU(lambda a, b, c: (a.sin(), b * 2, a * b * c), "several")
        self.result = result

    def forward(self):
        v = self.w * 2
        v.register_hook(hook=lambda gradient: gradient * 5)
        out = self.host(v, self.w, self.u)[self.result]
        return out, poptorch.identity_loss(out.sum(), "none")


@pytest.mark.parametrize("result", range(3))
def test_hooks_are_called_with_gradients_only(result):
    """Autograd calls those of a node whose gradient is not there, with None."""
    net = Hooked(result)
    eager = copy.deepcopy(net)
    eager.u.register_hook(lambda gradient: gradient * 3)  # a copy has none
    eager()[1].backward()
    with poptorch.testing.keep_gradients():
        model = trained(net)
        model()
        found = poptorch.testing.gradients(model)
    expected = {name: weight.grad for name, weight in eager.named_parameters()}
    torch.testing.assert_close(
        found, {name: grad for name, grad in expected.items() if grad is not None})
