"""Data near a kink is found, and drawn again."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.networks import harness
from tests.networks.kinks import MOST_DRAWS, batches_away_from_kinks
from tests.networks.zoo.base import Network, normal, sgd

# Float32 does not say on which side of one this times a weight comes out.
NEAR = 1 + 2**-22


class Kinked(nn.Module):
    """Puts its inputs' distance from one through an op with a kink at zero."""

    def __init__(self, op):
        super().__init__()
        self.op = op
        self.scale = nn.Parameter(torch.tensor(1.1))

    def forward(self, x):
        out = self.op(x * self.scale - self.scale)
        return out, out.mean()


OPS = {
    "relu": F.relu,
    "relu_": F.relu_,
    "leaky_relu": F.leaky_relu,
    "prelu": lambda x: F.prelu(x, x.new_tensor([0.3])),
    "abs": torch.abs,
    "hardtanh": lambda x: F.hardtanh(x, 0.0, 2.0),
    "hardswish": lambda x: F.hardswish(x + 3),
    "max_pool2d": lambda x: F.max_pool2d(torch.cat([x, x * 0], 2), (2, 1)),
}


def network_of(op, draws):
    """Draws the given values for one element of a step, one after the other."""
    values = iter(draws)

    def make_inputs(generator):
        x = normal(generator, 1, 2, 1, 8).abs() + 2
        x[0, 0, 0, 3] = next(values)
        return (x,)

    return Network(Kinked(op), make_inputs, sgd())


@pytest.mark.parametrize("op", OPS)
def test_a_step_near_a_kink_is_drawn_again(op, seed):
    network = network_of(OPS[op], [3.0, NEAR, 2.5, NEAR, 2.0])
    narrow, wide = batches_away_from_kinks(harness.train_eager, network, 3, seed)
    assert [x[0, 0, 0, 3].item() for (x,) in narrow] == [3.0, 2.0, 2.5]
    for (x,), (y,) in zip(narrow, wide):
        assert y.dtype == torch.float64
        assert torch.equal(x.double(), y)


def test_equal_zeros_are_no_kink(seed):
    network = network_of(lambda x: F.relu(F.relu(x - 10)), [3.0])
    narrow, _ = batches_away_from_kinks(harness.train_eager, network, 1, seed)
    assert narrow[0][0][0, 0, 0, 3] == 3.0


def test_data_that_is_always_near_is_an_error(seed):
    network = network_of(F.relu, [NEAR] * (MOST_DRAWS + 1))
    with pytest.raises(AssertionError, match="all come near a kink"):
        batches_away_from_kinks(harness.train_eager, network, 1, seed)
