"""Watched parameters and buffers: as the plain class to whoever uses them."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import poptorch
from tests.helpers import quiet_options


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.factor = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("offset", torch.tensor(2.5))

    def forward(self, x):
        y = self.fc(x) * self.factor + self.offset
        return y, poptorch.identity_loss((y * y).mean(), "none")


def wrapped(net):
    return poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.1))


def test_formatting():
    net = Net()
    wrapped(net)
    plain = copy.deepcopy(net)
    assert f"{net.offset:.3f}" == "2.500" and f"{net.offset}" == f"{plain.offset}"
    assert f"{net.factor}" == f"{plain.factor}" and repr(net) == repr(plain)
    for tensor in (net.factor, plain.factor):
        with pytest.raises(TypeError, match="unsupported format string passed to Parameter"):
            format(tensor, ".3f")


MADE = {"deepcopy": (copy.deepcopy, False),
        "pickle": (lambda tensor: pickle.loads(pickle.dumps(tensor)), False),
        "Parameter": (nn.Parameter, True),
        "Parameter without gradient": (lambda tensor: nn.Parameter(tensor, False), True)}


@pytest.mark.parametrize("make", MADE)
def test_what_is_made_of_them(make):
    make, is_parameter = MADE[make]
    net = Net()
    wrapped(net)(torch.ones(2, 4))
    for tensor, plain in ((net.factor, nn.Parameter), (net.offset, torch.Tensor)):
        made = make(tensor)
        assert type(made) is (nn.Parameter if is_parameter else plain)
        assert made.is_leaf and torch.equal(made, tensor)


def test_a_parameter_made_of_one_shares_its_memory_and_trains():
    net = Net()
    wrapped(net)
    other = nn.Parameter(net.fc.weight)
    assert type(other) is nn.Parameter and other.requires_grad
    assert other.data_ptr() == net.fc.weight.data_ptr()
    other.sum().backward()
    assert other.grad is not None and net.fc.weight.grad is None


def test_torch_load_of_a_state_dict():
    net = Net()
    wrapped(net)(torch.ones(2, 4))
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    for name, value in torch.load(file, weights_only=True).items():
        assert type(value) is torch.Tensor and torch.equal(value, net.state_dict()[name])


class Twice(nn.Module):
    def forward(self, w):
        return 2 * w

    def right_inverse(self, w):
        return w / 2


class Root(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))

    def forward(self, x):
        y = self.weight * x
        return y, poptorch.identity_loss((y * y).sum(), "none")


def test_parametrizing_a_wrapped_module():
    net = Root()
    model = wrapped(net)
    parametrize.register_parametrization(net, "weight", Twice())
    torch.testing.assert_close(net.weight.detach(), torch.tensor([1.0, 2.0]))
    x = torch.ones(2)
    _, loss = model(x)
    assert loss == 5.0
    # d loss / d original = 2 * 2 * weight; weight = 2 * (original - 0.1 * that)
    expected = torch.tensor([1.0, 2.0]) * (1 - 2 * 0.1 * 2 * 2)
    torch.testing.assert_close(net.weight.detach(), expected)
    torch.testing.assert_close(net(x)[0].detach(), expected)
    torch.testing.assert_close(copy.deepcopy(net).weight.detach(), expected)
    model.destroy()
    assert type(net).__mro__[1] is Root and parametrize.is_parametrized(net)
    parametrize.remove_parametrizations(net, "weight")
    assert type(net) is Root and type(net.weight) is nn.Parameter
    torch.testing.assert_close(net.weight.detach(), expected)


def test_removing_parametrizations_of_a_wrapped_module():
    net = Root()
    parametrize.register_parametrization(net, "weight", Twice())
    model = wrapped(net)
    model(torch.ones(2))
    copied = copy.deepcopy(net)
    assert poptorch._weights.instrument.is_instrumented(net)
    assert not poptorch._weights.instrument.is_instrumented(copied)
    assert type(copied).__name__ == "ParametrizedRoot"
    torch.testing.assert_close(copied.weight, net.weight)


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.orthogonal,
                                  parametrizations.spectral_norm], ids=lambda f: f.__name__)
def test_parametrizing_a_layer_of_a_wrapped_module(norm):
    net = Net()
    model = wrapped(net)
    norm(net.fc)
    eager = copy.deepcopy(net)
    x = torch.randn(2, 4)
    torch.testing.assert_close(model(x)[1], eager(x)[1].detach())
    assert net.fc.weight.shape == (3, 4)


def test_tensors_that_came_between_wrapping_and_compiling():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(2)

        def forward(self, x):
            return poptorch.identity_loss(self.norm(x).square().sum(), "none")

    net = Net()
    model = poptorch.trainingModel(net, quiet_options())
    net.norm.weight = torch.nn.Parameter(torch.full((2,), 3.0))
    net.norm.running_mean = torch.full((2,), 5.0)
    model.setOptimizer(torch.optim.SGD(net.parameters(), lr=0.5))
    norm = net.norm  # not by way of the wrapped module, which has readers of its own
    model(torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
    assert not torch.equal(norm.weight, torch.full((2,), 3.0))
    model(torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
    assert not torch.equal(norm.running_mean, torch.full((2,), 5.0))
    model.destroy()
    assert type(norm.weight) is torch.nn.Parameter and type(norm.running_mean) is torch.Tensor


def test_a_hook_after_accumulation_that_comes_too_late_is_told_of(caplog):
    net = nn.Linear(2, 2)
    net.forward = lambda x: poptorch.identity_loss(nn.functional.linear(x, net.weight), "sum")
    model = poptorch.trainingModel(net, quiet_options())
    model(torch.ones(1, 2))
    net.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    record, = caplog.records
    assert record.getMessage().startswith(
        "[weights] weight was given a hook that runs after its gradient is accumulated; it has no "
        "effect on a model that is compiled")
    assert len(net.weight._post_accumulate_grad_hooks) == 1
