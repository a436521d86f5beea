"""``poptorch.optim.MapGradients``: a function of the user's before the update."""

import pytest
import torch

import poptorch
from poptorch.testing import wide
from tests.own_step import zoo
from tests.own_step.common import Beside, Net, options, train


def centralized(parameter, grad):
    if grad.dim() > 1:
        grad = grad - grad.mean(dim=1, keepdim=True)
    return grad + 0.01 * parameter


@pytest.mark.parametrize("inner", [
    lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True), zoo.ALL["AdaBelief"]])
def test_updates_are_those_of_eager_mode(inner):
    with wide():
        both = Beside(lambda p: poptorch.optim.MapGradients(inner(p), centralized), options(4, 2))
        schedulers = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
                      for optimizer in (both.optimizer, both.reference)]
        for _ in range(20):
            both.train()
            for scheduler in schedulers:
                scheduler.step()
        both.check()
        both.check_states()
        assert len(both.model.programs()) == 1


def test_what_it_takes():
    net = Net()
    with pytest.raises(TypeError, match="expected an optimizer of torch.optim, got builtins.int"):
        poptorch.optim.MapGradients(3, centralized)
    with pytest.raises(TypeError, match=r"got poptorch.optim.*SGD"):
        poptorch.optim.MapGradients(poptorch.optim.SGD(net.parameters(), lr=1.0), centralized)
    with pytest.raises(TypeError, match="fn must be a function .* got NoneType"):
        poptorch.optim.MapGradients(torch.optim.SGD(net.parameters(), lr=1.0), None)


def test_what_fn_returns():
    for fn, kind, words in (
            (lambda p, g: None, TypeError, "expected a tensor from fn, got NoneType. Return"),
            (lambda p, g: g[:1], poptorch.Error, r"step\(\) of MapGradients assigns a gradient of "
             r"the shape \(1, 5\) and torch.float32 to a parameter of the shape \(6, 5\)"),
            (lambda p, g: g.double(), poptorch.Error, r"and torch.float64 to a parameter")):
        net = Net()
        optimizer = torch.optim.SGD(net.a.parameters(), lr=1.0)
        with pytest.raises(kind, match=words):
            train(poptorch.optim.MapGradients(optimizer, fn), net)


def test_groups_and_state_are_those_of_the_optimizer():
    net = Net()
    inner = torch.optim.SGD(net.a.parameters(), lr=1.0, momentum=0.5)
    outer = poptorch.optim.MapGradients(inner, centralized)
    outer.add_param_group({"params": list(net.b.parameters()), "lr": 0.5})
    assert [group["lr"] for group in inner.param_groups] == [1.0, 0.5]
    net(torch.randn(2, 5), torch.randn(2, 1))[1].backward()
    outer.step()
    state = outer.state_dict()
    outer.load_state_dict(state)
    assert outer.state is inner.state and len(outer.state) == 4
