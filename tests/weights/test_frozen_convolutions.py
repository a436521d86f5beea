"""Weights of convolutions that are not trained are reordered once, and again when they change."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import check_narrow, quiet_options


class Scaled(nn.Module):
    """A frozen convolution of scaled images, so that only its gradient of images is needed."""

    def __init__(self, **how):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8, 1, 1))
        self.convolution = nn.Conv2d(8, 16, 3, bias=False, **how).requires_grad_(False)

    def forward(self, x):
        y = self.convolution(x * self.scale)
        return y, poptorch.identity_loss(y.square().mean(), "none")


@pytest.mark.parametrize("how", [{"padding": 1}, {"stride": 2}, {"padding": 2, "dilation": 2}],
                         ids=str)
def test_gradients_follow_a_weight_that_the_host_changes(how):
    net, x = Scaled(**how), torch.randn(2, 8, 12, 12)
    narrow, wide = copy.deepcopy(net), copy.deepcopy(net).double()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.1))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (narrow, wide)]
    for step in range(3):
        ours, _ = model(x)
        eager = []
        for module, optimizer in zip((narrow, wide), optimizers, strict=True):
            optimizer.zero_grad()
            y, loss = module(x.to(module.scale.dtype))
            loss.backward()
            optimizer.step()
            eager.append({"y": y.detach(), "scale": module.scale.detach().clone()})
        got = {"y": ours, "scale": net.scale.detach()}
        check_narrow(got, eager[:1], eager[1])
        if step == 1:
            change = torch.randn_like(net.convolution.weight)
            for module in (net, narrow, wide):
                with torch.no_grad():
                    module.convolution.weight += change.to(module.scale.dtype)
            model.copyWeightsToDevice()
