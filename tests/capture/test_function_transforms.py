"""A ``torch.autograd.Function`` of the user's within what ``torch.func`` transforms."""

import copy

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.helpers import quiet_options

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


class Sine(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sin(), F.softplus(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx, sine, other):
        x, = ctx.saved_tensors
        return sine * x.cos() + other * x.sigmoid()

    @staticmethod
    def jvp(ctx, tangent):
        x, = ctx.saved_tensors
        return tangent * x.cos(), tangent * x.sigmoid()


def total(x):
    first, second = Sine.apply(x)
    return (first * second).sum()


TRANSFORMS = {
    "vmap": lambda w: torch.vmap(Sine.apply)(w)[0],
    "grad": torch.func.grad(total),
    "vmap of grad": torch.vmap(torch.func.grad(total)),
    "jacrev": lambda w: torch.func.jacrev(total)(w[0]),
    "jacfwd": lambda w: torch.func.jacfwd(total)(w[0]),
    "hessian": lambda w: torch.func.hessian(total)(w[0]),
}


@pytest.mark.parametrize("transformed", TRANSFORMS.values(), ids=TRANSFORMS)
def test_as_in_eager(transformed):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(2, 3))

        def forward(self, x):
            out = transformed(self.w)
            return out, poptorch.identity_loss((out * x).square().sum(), "none")

    net, x = Net(), torch.ones(())
    eager = copy.deepcopy(net)
    out, loss = eager(x)
    loss.backward()
    torch.optim.SGD(eager.parameters(), 0.1).step()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 0.1))
    torch.testing.assert_close(model(x)[0], out.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.w, eager.w, rtol=1e-4, atol=1e-5)
