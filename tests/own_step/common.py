"""What the tests of captured ``step()`` share: a network, and its training beside eager mode."""

import copy

import torch

import poptorch
from tests.helpers import check_wide, quiet_options


class Net(torch.nn.Module):
    """Parameters of two, one and no dimension, one of one element, and one without a gradient."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(5, 6), torch.nn.Linear(6, 1)
        self.scale = torch.nn.Parameter(torch.tensor(1.5))
        self.unused = torch.nn.Parameter(torch.ones(3))

    def forward(self, x, target):
        out = self.b(torch.tanh(self.a(x))) * self.scale
        return out, torch.nn.functional.mse_loss(out, target)


def options(accumulation=1, replicas=1, iterations=1, on_host=False):
    opts = quiet_options().replicationFactor(replicas).deviceIterations(iterations)
    opts.Training.gradientAccumulation(accumulation)
    if on_host:
        opts.Training.optimizerOnHost(True)
    return opts


def train(optimizer, net, **settings):
    model = poptorch.trainingModel(net, options(**settings), optimizer)
    return model(torch.randn(2, 5), torch.randn(2, 1))


class Beside:
    """One network trained by an executor and the same one in eager mode, in float64."""

    def __init__(self, make, opts=None, net=None):
        self.opts = opts or options()
        self.net = (net or Net()).double()
        self.eager = copy.deepcopy(self.net)
        self.optimizer, self.reference = make(self.net.parameters()), make(self.eager.parameters())
        self.model = poptorch.trainingModel(self.net, self.opts, self.optimizer)
        self.updates = self.opts.device_iterations
        self.samples = 2 * self.opts.Training.gradient_accumulation * self.opts.replication_factor

    def train(self, steps=1):
        for _ in range(steps):
            x = torch.randn(self.samples * self.updates, 5, dtype=torch.float64)
            target = torch.randn(len(x), 1, dtype=torch.float64)
            self.model(x, target)
            for one, two in zip(x.split(self.samples), target.split(self.samples)):
                self.reference.zero_grad()
                self.eager(one, two)[1].backward()
                self.reference.step()

    def check(self):
        check_wide(dict(self.net.named_parameters()), dict(self.eager.named_parameters()))

    def check_states(self):
        ours, theirs = self.optimizer.state_dict(), self.reference.state_dict()
        assert ours["param_groups"] == theirs["param_groups"]
        assert ours["state"].keys() == theirs["state"].keys()
        for key, entry in theirs["state"].items():
            assert_same(ours["state"][key], entry)


def assert_same(ours, theirs):
    """The same numbers, and tensors that agree."""
    if isinstance(theirs, torch.Tensor):
        check_wide({"state": ours.double()}, {"state": theirs.double()})
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert_same(ours[key], value)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            assert_same(one, other)
    else:
        assert ours == theirs
