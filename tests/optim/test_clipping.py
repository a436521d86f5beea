"""options.Training.gradientClipping, compared with clip_grad_norm_ and clip_grad_value_."""

import copy
import functools

import pytest
import torch

import poptorch
from tests.optim.loops import Net, options, train

SGD = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
ADAM = functools.partial(torch.optim.Adam, lr=0.01)


@pytest.mark.parametrize("make", [SGD, ADAM])
@pytest.mark.parametrize("limits", [{"norm": 0.2}, {"value": 0.01}, {"norm": 0.2, "value": 0.01},
                                    {"norm": 1e3}])
def test_the_option(make, limits):
    assert train(make, make, options(**limits), **limits)[-1] < 1e-5


@pytest.mark.parametrize("limits", [{"norm": 0.2}, {"value": 0.01}])
@pytest.mark.parametrize("accumulation, replicas", [(3, 1), (1, 2), (2, 2)])
def test_with_micro_batches_and_replicas(accumulation, replicas, limits):
    opts = options(accumulation, replicas, **limits)
    assert train(ADAM, ADAM, opts, **limits)[-1] < 1e-5


@pytest.mark.parametrize("limits", [{"norm": 0.2}, {"value": 0.01}])
def test_with_a_loss_scale(limits):
    make = functools.partial(poptorch.optim.Adam, lr=0.01, loss_scaling=256.0)
    assert train(make, ADAM, options(2, **limits), **limits)[-1] < 1e-5


def test_the_smaller_one_of_two_norms():
    make = functools.partial(poptorch.optim.SGD, lr=0.1, momentum=0.9, max_grad_norm=0.5)
    assert train(make, SGD, options(norm=0.2), norm=0.2)[-1] < 1e-5


class Two(torch.nn.Module):
    """Gradients: x for `a`, 2 x for `b`."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(3))
        self.b = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return poptorch.identity_loss(((self.a + 2 * self.b) * x).sum(), "none")


def test_only_what_the_optimizer_trains():
    """The gradients of other parameters are no part of the norm."""
    net = Two()
    model = poptorch.trainingModel(net, options(norm=1.0), torch.optim.SGD([net.b], lr=1.0))
    model(torch.ones(3))
    torch.testing.assert_close(net.b.detach(), torch.full((3,), -(3**-0.5)))
    assert not net.a.any()


def test_gradients_that_are_kept_are_clipped():
    net = Two()
    with poptorch.testing.keep_gradients():
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        model = poptorch.trainingModel(net, options(value=1.5), optimizer)
        model(torch.tensor([1.0, -1.0, 0.25]))
    assert torch.equal(poptorch.testing.gradients(model)["b"], torch.tensor([1.5, -1.5, 0.5]))


NORMS = {
    "no limit": ({}, {}), "norm": ({"norm": 0.2}, {}), "value": ({"value": 0.01}, {}),
    "micro-batches": ({"accumulation": 3}, {}),
    "replicas": ({"replicas": 2, "norm": 0.2}, {}),
    "a loss scale": ({"norm": 0.2}, {"loss_scaling": 256.0}),
    "a scale and no limit": ({"accumulation": 2}, {"loss_scaling": 256.0}),
    "automatic": ({"automatic": True}, {}),
    "of the optimizer": ({}, {"max_grad_norm": 0.5}),
    "combined": ({"accumulation": 2}, {"momentum": 0.9, "dampening": 0.0,
                                       "use_combined_accum": True, "velocity_scaling": 2.0}),
}


@pytest.mark.parametrize("name", NORMS)
def test_the_norm_can_be_read(name):
    """It is what clip_grad_norm_ of PyTorch returns: that before the limit."""
    settings, attributes = NORMS[name]
    opts = options(**settings).anchorTensor("norm", "gradientNorm")
    net = Net()
    eager = copy.deepcopy(net).double()
    model = poptorch.trainingModel(net, opts,
                                   poptorch.optim.SGD(net.parameters(), lr=0.1, **attributes))
    x, target = torch.randn(12, 6), torch.randn(12, 3)
    model(x, target)
    eager(x.double(), target.double()).backward()
    expected = torch.nn.utils.clip_grad_norm_(eager.parameters(), 0.2)
    norms = model.getAnchoredTensor("norm")
    assert norms.numel() == settings.get("replicas", 1) and "gradientNorm" in model.getTensorNames()
    for norm in norms.reshape(-1):
        torch.testing.assert_close(norm, expected.float(), rtol=1e-5, atol=0)


class Grouped(torch.nn.Module):
    """A weight with a value for each group of replicas."""

    def __init__(self, groups=1):
        super().__init__()
        self.own = torch.nn.Parameter(torch.zeros(groups, 3) if groups > 1 else torch.zeros(3))
        self.common = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x):
        own = self.own if self.own.dim() == 1 else self.own[0]
        return poptorch.identity_loss(((own + self.common) * x).sum(), "mean")


def test_weights_with_a_value_for_each_group():
    """Their gradient is that of all groups together."""
    net = Grouped(2)
    opts = options(replicas=2, norm=1.0).anchorTensor("norm", "gradientNorm")
    model = poptorch.trainingModel(net, opts, torch.optim.SGD(net.parameters(), lr=1.0))
    kind = poptorch.CommGroupType.Consecutive
    model.own.replicaGrouping(kind, 1, poptorch.VariableRetrievalMode.OnePerGroup)
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    model(x.reshape(-1))
    own, common = -x / 2, -x.mean(0)
    norm = torch.cat([own.reshape(-1), common]).norm()
    torch.testing.assert_close(net.own.detach(), own / norm)
    torch.testing.assert_close(net.common.detach(), common / norm)
    torch.testing.assert_close(model.getAnchoredTensor("norm"), norm.repeat(2))


def test_in_stages():
    """The norm is that over all stages."""
    class Stages(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Two()

        def forward(self, x):
            with poptorch.Block("a", ipu_id=0):
                y = self.net.a * x
            with poptorch.Block("b", ipu_id=1):
                y = y + 2 * self.net.b * x
            return poptorch.identity_loss(y.sum(), "none")

    stages = Stages()
    opts = options(3, norm=1.0).anchorTensor("norm", "gradientNorm")
    opts.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage("a"),
                                                          poptorch.Stage("b")))
    opts.autoRoundNumIPUs(True)
    optimizer = poptorch.optim.SGD(stages.parameters(), lr=1.0, loss_scaling=8.0)
    model = poptorch.trainingModel(stages, opts, optimizer)
    model(torch.ones(9))
    torch.testing.assert_close(model.getAnchoredTensor("norm"), torch.tensor(15.0).sqrt())
    torch.testing.assert_close(stages.net.a.detach(), torch.full((3,), -(15**-0.5)))
    torch.testing.assert_close(stages.net.b.detach(), torch.full((3,), -2 * 15**-0.5))
