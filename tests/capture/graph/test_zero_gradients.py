"""Parameters that have a gradient of zeros in eager have one here: without one, an optimizer would
neither decay them nor move them by their momentum."""

import copy

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.helpers import quiet_options

# A function, the shape of its parameter, and how often it is differentiated.
CASES = {
    "product of one number": (lambda w: w.prod(-1), (3, 1), 2),
    "product of one number in all": (lambda w: torch.prod(w), (1,), 2),
    "third derivative of one number": (lambda w: torch.prod(input=w, dim=0), (1, 3), 3),
    "third derivative of two numbers": (lambda w: w.prod(0, keepdim=True), (2,), 3),
    "product of several numbers": (lambda w: w.prod(1), (2, 3), 2),
    "third derivative of products so far": (lambda w: w.cumprod(0), (2,), 3),
    "an overload, by name": (
        lambda w: torch.ops.aten.cumprod.default(self=w, dim=0), (2,), 3),
    "rrelu": (lambda w: F.rrelu(w, 0.25, 0.25, training=True), (4,), 2),
    # No path in eager either.
    "product of a number without dimensions": (lambda w: w.prod(), (), 2),
    "products so far of one number": (lambda w: torch.cumprod(w, 1), (3, 1), 2),
    "relu": (torch.relu, (4,), 2),
}


class Net(torch.nn.Module):
    def __init__(self, function, shape, order):
        super().__init__()
        self.function, self.order = function, order
        self.w, self.b = (torch.nn.Parameter(torch.rand(shape) + 0.5) for _ in range(2))

    def forward(self, x):
        out = self.function(self.w).sum()
        for _ in range(self.order - 1):
            out = torch.autograd.grad(out, self.w, create_graph=True)[0].sum()
        return poptorch.identity_loss(out + (self.b * x).sum(), "none")


def train_both(net, *inputs):
    """Weights after two steps, here and in eager."""
    eager = copy.deepcopy(net)
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.5}
    model = poptorch.trainingModel(net, quiet_options(),
                                   torch.optim.SGD(net.parameters(), **settings))
    optimizer = torch.optim.SGD(eager.parameters(), **settings)
    for _ in range(2):
        optimizer.zero_grad()
        eager(*inputs).backward()
        optimizer.step()
        model(*inputs)
    return net.state_dict(), eager.state_dict()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_weights_decay_as_in_eager(case):
    torch.testing.assert_close(*train_both(Net(*case), torch.ones(())), rtol=1e-5, atol=1e-6)


def test_an_infinite_factor_has_no_nan():
    """The zeros are chosen, not computed by a product."""
    module = torch.nn.Module()
    module.w = torch.nn.Parameter(torch.tensor([float("inf")]))

    def forward(x):
        out, = torch.autograd.grad(module.w.prod(), module.w, create_graph=True)
        return out, poptorch.identity_loss((out * x).sum(), "none")

    module.forward = forward
    out, _ = poptorch.trainingModel(module, quiet_options())(torch.ones(1))
    assert out.tolist() == [1.0]


def test_products_within_function_transforms():
    class Transformed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.rand(3, 2) + 0.5)

        def forward(self, x):
            gradient = torch.func.vmap(torch.func.grad(lambda w: w.prod() * w.cumprod(0).sum()))
            return poptorch.identity_loss((gradient(self.w) * x).sum(), "none")

    torch.testing.assert_close(*train_both(Transformed(), torch.ones(2)))
