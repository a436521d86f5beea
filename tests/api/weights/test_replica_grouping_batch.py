"""Weights of groups of replicas, compared with one model on the CPU with the whole batch."""

import copy

import pytest
import torch

import poptorch
from poptorch import CommGroupType
from tests.api.weights.test_replica_grouping import GROUPED, Net, group
from tests.helpers import quiet_options


class OfGroups(torch.nn.Module):
    """The groups in one model: each part of the batch goes through the weights of its replica."""

    def __init__(self, net, of):
        super().__init__()
        self.net, self.of = net, of

    def forward(self, x, target):
        values = dict(self.net.named_parameters())
        inner = Net().to(x.dtype)
        results = [torch.func.functional_call(
            inner, {name: value[self.of[replica]] if name in GROUPED else value
                    for name, value in values.items()}, (part,))
            for replica, part in enumerate(x.chunk(len(self.of)))]
        return torch.nn.functional.mse_loss(torch.cat(results), target)


@pytest.mark.parametrize("strategy", ["Running", "Post"])
@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize("size, kind, of", [
    (2, "Consecutive", [0, 0, 1, 1, 2, 2, 3, 3]), (2, "Orthogonal", [0, 1, 2, 3] * 2),
    (4, "Orthogonal", [0, 1] * 4), (1, "NoGrouping", range(8)), (8, "Consecutive", [0] * 8)])
def test_one_model_whose_loss_is_the_mean_over_the_batch(size, kind, of, micro_batches, mean,
                                                         strategy):
    net = Net(8 // size)
    x, target = torch.randn(3, micro_batches, 16, 3), torch.randn(3, micro_batches, 16, 2)
    opts = quiet_options(replicationFactor=8)
    opts.Training.gradientAccumulation(micro_batches)
    opts.Training.accumulationAndReplicationReductionType(
        poptorch.ReductionType.Mean if mean else poptorch.ReductionType.Sum)
    opts.Training.setMeanAccumulationAndReplicationReductionStrategy(
        poptorch.MeanReductionStrategy[strategy])
    cpu = OfGroups(copy.deepcopy(net), of)
    lr = 0.1 if mean else 0.1 / (8 * micro_batches)
    model = poptorch.trainingModel(net, opts, torch.optim.SGD(net.parameters(), lr=lr))
    group(model, (CommGroupType[kind], size))
    update = torch.optim.SGD(cpu.parameters(), lr=0.1)
    for step in range(3):
        # The micro-batches of a replica are neighbours.
        parts = [t[step].unflatten(1, (8, 2)).transpose(0, 1).flatten(0, 2) for t in (x, target)]
        model(*parts)
        loss = torch.stack([cpu(*micro) for micro in zip(x[step], target[step])]).mean()
        update.zero_grad()
        loss.backward()
        update.step()
    for (name, ours), theirs in zip(model.named_parameters(), cpu.parameters()):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0, msg=name)
