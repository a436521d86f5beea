"""Parameters that get no gradient in eager have none here: zeros would let weights decay."""

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.fuzz.programs import custom_ops


class Stop(torch.autograd.Function):
    """Has no gradient, as a function of a user may."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return None


FUNCTIONS = {
    "product": lambda w: w * 2,
    "dropout": lambda w: F.dropout(w, 0.5),
    "batch norm": lambda w: F.batch_norm(w, torch.zeros(4), torch.ones(4), training=True),
    "batch norm of inference": lambda w: F.batch_norm(w, torch.zeros(4), torch.ones(4)),
    "dynamic slice": lambda w: poptorch.dynamic_slice(w, 0, torch.tensor(1), 2, 1),
    "dynamic update": lambda w: poptorch.dynamic_update(w, w[:1] * 2, 0, torch.tensor(1), 1),
    "serialized product": lambda w: poptorch.serializedMatMul(
        w, w, poptorch.MatMulSerializationMode.InputChannels, 2),
    "embedding bag": lambda w: F.embedding_bag(torch.tensor([[0, 1]]), w),
    "attention": lambda w: F.scaled_dot_product_attention(w[None], w[None], w[None]),
    "margin loss": lambda w: F.multi_margin_loss(w, torch.tensor([0, 1, 2, 3])),
    "printed": lambda w: poptorch.ipu_print_tensor(w),
    "custom op": lambda w: custom_ops.cube(w, 2.0),
    "loop": lambda w: poptorch.for_loop(2, lambda x: [x * 2], [w])[0],
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_weights_without_a_gradient_do_not_decay(function, capfd):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.b = (torch.nn.Parameter(torch.ones(4, 4)) for _ in range(2))

        def forward(self, x):
            loss = Stop.apply(function(self.w)).sum() + (x * self.b).sum()
            return poptorch.identity_loss(loss, "mean")

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, weight_decay=0.5)
    model = poptorch.trainingModel(net, optimizer=optimizer)
    model(torch.ones(4))
    model.copyWeightsToHost()
    assert torch.equal(net.w, torch.ones(4, 4))
    assert not torch.equal(net.b, torch.ones(4, 4))
