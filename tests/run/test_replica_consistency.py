"""Runs that end in their midst: replicas that share a value have the same one in the next run."""

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options

REPLICAS = 4
GROUPS = {"all": None, "consecutive": (poptorch.CommGroupType.Consecutive, 2, [0, 0, 1, 1]),
          "orthogonal": (poptorch.CommGroupType.Orthogonal, 2, [0, 1, 0, 1])}


def options(**settings):
    return quiet_options(replicationFactor=REPLICAS, **settings)


class Trained(nn.Module):
    """Three weights; an update of the middle one can overflow."""

    def __init__(self, groups=None):
        super().__init__()
        self.a = nn.Parameter(torch.ones(*(() if groups is None else (2,)), 1))
        self.b, self.c = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

    def forward(self, x, y):
        loss = poptorch.identity_loss((self.a * x + self.b * y + self.c * x).sum(), "sum")
        return self.a * 1, torch.stack([self.b, self.c], 1), loss


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.NAdam, torch.optim.RMSprop])
def test_an_update_that_ends_in_its_midst(name, optimizer):
    groups = GROUPS[name]
    net = Trained(groups)
    model = poptorch.trainingModel(net, options(Precision__enableFloatingPointExceptions=True),
                                   optimizer(net.parameters(), lr=0.1))
    if groups:
        net.a.replicaGrouping(*groups[:2], poptorch.VariableRetrievalMode.OnePerGroup)
    first = [groups[2].index(group) for group in groups[2]] if groups else [0] * REPLICAS
    x, y = torch.arange(1.0, 1 + REPLICAS), torch.ones(REPLICAS)
    model(x, y)
    with pytest.raises(poptorch.Error, match="(?s)overflow.* in replica 0"):
        model(x, y * 1e30)
    for _ in range(3):
        a, b, _ = model(x, y * 0.5)
        assert torch.equal(a, a[first]) and torch.equal(b, b[:1].expand(REPLICAS, 2))


class Counting(nn.Module):
    """Counts calls in a parameter, which replicas share, and in a buffer, which they do not."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.register_buffer("own", torch.zeros(1))
        self.table = nn.Embedding(4, 1)

    def forward(self, index):
        self.shared += 1
        self.own += 1
        return self.shared * 1, self.own * 1, self.table(index)


@pytest.mark.parametrize("failing", range(REPLICAS))
def test_a_replica_that_refuses_its_data(failing):
    model = poptorch.inferenceModel(Counting(), options(broadcastBuffers=False))
    index = torch.zeros(REPLICAS, dtype=torch.int64)
    model(index)
    with pytest.raises(poptorch.Error, match="index 9 .* out of range"):
        model(index.index_fill(0, torch.tensor(failing), 9))
    shared, own, _ = model(index)
    assert torch.equal(shared, shared[:1].expand(REPLICAS))
    # Of the one that refused, only the program knows whether it came to count.
    assert own[:failing].eq(3).all() and own[failing + 1:].eq(2).all()
