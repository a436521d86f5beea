"""Training compared with an explicit PyTorch loop, with micro-batches, replicas and clipping."""

import copy

import torch

import poptorch
from tests.helpers import quiet_options


class Net(torch.nn.Module):
    """Two layers; the loss is that of float32 whatever the type of the weights."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.first = torch.nn.Linear(6, 8).to(dtype)
        self.second = torch.nn.Linear(8, 3).to(dtype)

    def forward(self, x, target):
        y = self.second(torch.tanh(self.first(x)))
        return torch.nn.functional.mse_loss(y, target)


def options(accumulation=1, replicas=1, norm=None, value=None, automatic=False, **settings):
    opts = quiet_options(replicationFactor=replicas, **settings)
    opts.Training.gradientAccumulation(accumulation)
    opts.Training.gradientClipping(norm, value)
    opts.Training.setAutomaticLossScaling(automatic)
    return opts


def train(make, reference, opts=None, *, steps=5, dtype=torch.float32, norm=None, value=None,
          before_step=lambda step, ours, theirs, model: None):
    """Trains a net on the device and one of float64 in PyTorch.

    Args:
        make: the optimizer of the device, of its parameters.
        reference: PyTorch's.
        opts: of the executor.
        steps: updates.
        dtype: of the device's weights.
        norm, value: as the clipping functions of PyTorch take it.
        before_step: called with the number of the step and both optimizers, and the executor.

    Returns:
        The executor, the optimizer, and the largest relative distance of a parameter.
    """
    opts = opts or options()
    micro = opts.Training.gradient_accumulation * opts.replication_factor
    net = Net(dtype)
    eager = copy.deepcopy(net).double()
    ours, theirs = make(net.parameters()), reference(eager.parameters())
    model = poptorch.trainingModel(net, opts, ours)
    for step in range(steps):
        before_step(step, ours, theirs, model)
        x = torch.randn(4 * micro, 6).to(dtype)
        target = torch.randn(4 * micro, 3).to(dtype)
        loss = model(x, target)
        theirs.zero_grad()
        expected = eager(x.double(), target.double())
        expected.backward()  # the mean over equal micro-batches
        if norm is not None:
            torch.nn.utils.clip_grad_norm_(eager.parameters(), norm)
        if value is not None:
            torch.nn.utils.clip_grad_value_(eager.parameters(), value)
        theirs.step()
        if micro == 1:  # the loss that the user sees is not scaled
            tolerance = 1e-5 if dtype is torch.float32 else 2e-2
            torch.testing.assert_close(loss.double(), expected.detach(), rtol=tolerance, atol=1e-3)
    off = max(float((a.detach().double() - b.detach()).norm() / b.detach().norm())
              for a, b in zip(net.parameters(), eager.parameters()))
    return model, ours, off
