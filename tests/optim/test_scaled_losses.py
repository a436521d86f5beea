"""A loss scale changes no gradient, whatever the loss and the layers are."""

import copy

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import poptorch
from tests.helpers import quiet_options

CLASSES = 5


def hot(target):
    return functional.one_hot(target, CLASSES).float()


LOSSES = {
    "cross_entropy": functional.cross_entropy,
    "smoothed": lambda y, t: functional.cross_entropy(y, t, label_smoothing=0.1),
    "nll": lambda y, t: functional.nll_loss(functional.log_softmax(y, -1), t),
    "mse": lambda y, t: functional.mse_loss(y, hot(t)),
    "l1": lambda y, t: functional.l1_loss(y, hot(t)),
    "bce": lambda y, t: functional.binary_cross_entropy_with_logits(y, hot(t)),
    "huber": lambda y, t: functional.huber_loss(y, hot(t)),
    "sum": lambda y, t: poptorch.identity_loss(y * y, "sum"),
    "not reduced": lambda y, t: poptorch.identity_loss(y * y, "none"),
    "two": lambda y, t: poptorch.identity_loss(
        functional.cross_entropy(y, t) + y.abs().mean(), "none"),
}
BODIES = {
    "plain": lambda layers, x: layers(x),
    "recomputed": lambda layers, x: checkpoint(layers, x, use_reentrant=False),
    "loop": lambda layers, x: layers[-1](
        poptorch.for_loop(2, lambda h: torch.tanh(layers[0](h)), [x])[0]),
}


class Net(torch.nn.Module):
    def __init__(self, body, loss):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8),
                                          torch.nn.GELU(), torch.nn.Linear(8, CLASSES))
        self.body, self.loss = body, loss

    def forward(self, x, target):
        return self.loss(self.body(self.layers, x), target)


def gradients(net, scale, data):
    with poptorch.testing.keep_gradients():
        optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1, loss_scaling=scale)
        model = poptorch.trainingModel(net, quiet_options(), optimizer)
        loss = model(*data)
    return loss, poptorch.testing.gradients(model)


@pytest.mark.parametrize("body, loss", [*(("plain", loss) for loss in LOSSES),
                                        *((body, "cross_entropy") for body in BODIES)])
def test_gradients(body, loss):
    net = Net(BODIES[body], LOSSES[loss])
    data = torch.randn(6, 8), torch.randint(0, CLASSES, (6,))
    expected, plain = gradients(copy.deepcopy(net), None, data)
    found, scaled = gradients(net, 64.0, data)
    torch.testing.assert_close(found, expected)
    assert plain.keys() == scaled.keys()
    for name, value in plain.items():
        torch.testing.assert_close(scaled[name], value, rtol=1e-5, atol=1e-7, msg=name)
