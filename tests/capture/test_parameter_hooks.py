"""Hooks on the gradients of parameters."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function
from tests.capture.graph_text import text
from tests.helpers import quiet_options


def test_hooks_on_parameters_change_their_gradients():
    module = Function(lambda m, x: (x, ((x * m.w) ** 2).sum()), {"w": torch.ones(3).double()})
    module.w.register_hook(lambda gradient: gradient.clamp(-0.5, 0.5))
    module.forward = lambda x: (x, poptorch.identity_loss((x * module.w).square(), "sum"))
    captured = capture(module, (torch.ones(3).double(),), training=True)
    assert "clamp" in text(captured)


@pytest.mark.parametrize("where", ["before", "in forward"])
@pytest.mark.parametrize("accumulation, replicas", [(1, 1), (2, 1), (1, 2)])
def test_hooks_on_parameters_see_the_gradient_of_the_whole_batch(accumulation, replicas, where):
    def hook(gradient):
        return gradient.clamp(-0.01, 0.01)

    class Net(nn.Linear):
        def forward(self, x):
            if where == "in forward":
                self.weight.register_hook(hook)
            return F.mse_loss(super().forward(x), torch.zeros(len(x), 2))

    net, x = Net(3, 2), torch.randn(4, 3)
    if where == "before":
        net.weight.register_hook(hook)
    eager = Net(3, 2)
    eager.load_state_dict(net.state_dict())
    options = quiet_options(replicationFactor=replicas)
    options.Training.gradientAccumulation(accumulation)
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=1.0))
    if accumulation * replicas > 1:
        with pytest.raises(poptorch.Error, match=rf"weight has a hook on its gradient .*gradient"
                           rf"Accumulation is {accumulation} and replicationFactor {replicas}: "
                           rf".*Remove the hook, or set both to 1. .*gradientClipping"):
            model(x)
        return
    model(x)
    if where == "before":
        eager.weight.register_hook(hook)
    eager(x).backward()
    torch.optim.SGD(eager.parameters(), lr=1.0).step()
    torch.testing.assert_close(net.weight.detach(), eager.weight.detach())


def test_hooks_after_accumulation_are_not_ignored_without_a_word(capsys):
    module = nn.Linear(2, 2)
    module.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    capture(module, (torch.ones(1, 2),), training=False)
    assert "weight has hooks that run after its gradient" in capsys.readouterr().err
