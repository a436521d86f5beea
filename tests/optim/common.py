"""What the tests of optimizer states share: a network, optimizers, comparisons."""

import io

import torch

import poptorch
from tests.helpers import quiet_options

KINDS = {
    "sgd": lambda p: poptorch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2,
                                             weight_decay=0.05),
    "adam": lambda p: poptorch.optim.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6),
    "amsgrad": lambda p: poptorch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: poptorch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: poptorch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "tf": lambda p: poptorch.optim.RMSprop(p, lr=0.01, weight_decay=0.1, use_tf_variant=True),
    "lamb": lambda p: poptorch.optim.LAMB(p, lr=0.01, weight_decay=0.1),
}


class Outer(torch.nn.Module):
    """A module whose program has other names of the same parameters."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)


class Net(torch.nn.Module):
    """A convolution, whose weight and state lie in another order on the device, and a layer."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 5, 3, padding=1)
        self.fc = torch.nn.Linear(5, 2)
        self.frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x, target):
        y = self.fc(torch.tanh(self.conv(x)).mean((2, 3)))
        return y, torch.nn.functional.mse_loss(y, target)


def batch(n=4, dtype=torch.float32):
    return torch.randn(n, 3, 6, 6, dtype=dtype), torch.randn(n, 2, dtype=dtype)


def training(kind, net=None, opts=None):
    """An optimizer and the executor of a net, new if none is given."""
    net = net or Net()
    optimizer = KINDS[kind](net.parameters())
    return optimizer, poptorch.trainingModel(net, opts or quiet_options(), optimizer)


def options(accumulation=1, **settings):
    opts = quiet_options(**settings)
    opts.Training.gradientAccumulation(accumulation)
    return opts


def written(value, **settings):
    """What ``torch.save`` makes of a value, read again."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **settings)


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value, right[name]), name
