"""What the tests of torch.compile share: a network, steps in eager PyTorch beside compiled ones."""

import copy

import torch
from torch import nn

import poptorch
from tests.helpers import check_narrow, quiet_options, to_dtype


class Net(nn.Module):
    """Convolution, batch norm, a second input by name, results in a dict, one of them None."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 2)

    def forward(self, x, scale=None):
        y = self.norm(self.conv(x)).relu().mean((2, 3))
        if scale is not None:
            y = y * scale
        return {"out": self.fc(y), "features": (y,), "nothing": None}


def compiled(thing):
    """``poptorch.compile`` without a progress bar."""
    return poptorch.compile(thing, quiet_options())


def batch(rows=4):
    return torch.randn(rows, 3, 6, 6)


def steps(net, batches, make_optimizer):
    """Trains; the results, the gradients of inputs, and after all steps gradients and state."""
    optimizer, found = make_optimizer(net.parameters()), []
    for x in batches:
        x = x.to(next(net.parameters()).dtype, copy=True).requires_grad_()
        optimizer.zero_grad()
        result = net(x, scale=x.detach().mean() + 1)
        assert result["nothing"] is None
        (result["out"].square().mean() + result["features"][0].sum()).backward()
        optimizer.step()
        found.append((result["out"].detach(), result["features"], x.grad))
    net = getattr(net, "_orig_mod", net)  # of torch.compile
    grads = {name: parameter.grad for name, parameter in net.named_parameters()}
    return found, grads, copy.deepcopy(net.state_dict())


def check_steps(net, compiled, batches, make_optimizer):
    """Compares steps of ``compiled``, made of ``net``, with eager steps of a copy of it."""
    narrow, last, wide = copy.deepcopy(net), copy.deepcopy(net), to_wide(net)
    ours = steps(compiled, batches, make_optimizer)
    eager = [steps(narrow, batches, make_optimizer)]
    last.to(memory_format=torch.channels_last)
    eager.append(steps(last, [x.to(memory_format=torch.channels_last) for x in batches],
                       make_optimizer))
    check_narrow(ours, eager, steps(wide, batches, make_optimizer))


def to_wide(net):
    wide = copy.deepcopy(net).double()
    wide.load_state_dict(to_dtype(net.state_dict(), torch.float64))
    return wide
