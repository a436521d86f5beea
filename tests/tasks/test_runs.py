"""Programs that run in turn: a task for each run of blocks, and only activations are kept."""

import re

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

ROWS, COLUMNS = 2, 16
TASK = re.compile(r"= task .*|^  task .*", re.MULTILINE)
STASH = re.compile(r"= stash \S+ \{bytes=(\d+)")
IPUS = {"chain": [0, 1, 0, 1, 0], "back": [0, 0, 1, 2, 2, 1], "later": [1, 2, 0, 1]}


class Chain(torch.nn.Module):
    """Linear layers, each in a block of its own, with an op between a weight and its layer."""

    def __init__(self, ipus, kind):
        super().__init__()
        self.ipus, self.kind = ipus, kind
        self.layers = torch.nn.ModuleList(torch.nn.Linear(COLUMNS, COLUMNS) for _ in ipus)
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(COLUMNS) for _ in ipus)

    def forward(self, x):
        for number, (ipu, layer) in enumerate(zip(self.ipus, self.layers)):
            poptorch.Block.start(f"block{number}", ipu_id=ipu)
            if self.kind == "cast":
                x = torch.nn.functional.linear(x, layer.weight.half().float())
            elif self.kind == "scaled":
                x = torch.nn.functional.linear(x.relu(), layer.weight * layer.bias)
            else:
                x = self.norms[number](layer(x)) if self.kind == "norm" else layer(x)
        return (x, poptorch.identity_loss(x.square(), "mean")) if self.training else x


def placed(ipus, training, kind):
    net = Chain(ipus, kind)
    settings = {"setExecutionStrategy": poptorch.ShardedExecution(poptorch.AutoStage.SameAsIpu)}
    if training:
        options = quiet_options(Training__gradientAccumulation=4, autoRoundNumIPUs=True, **settings)
        model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), 0.125))
    else:
        model = poptorch.inferenceModel(net.eval(),
                                        quiet_options(autoRoundNumIPUs=True, **settings))
    model.compile(torch.randn(ROWS * (4 if training else 1), COLUMNS))
    return model.ir("place")


@pytest.mark.parametrize("kind", ["plain", "cast", "scaled", "norm"])
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("ipus", IPUS.values(), ids=IPUS)
def test_a_task_for_each_run(ipus, training, kind):
    text = placed(ipus, training, kind)
    parts = [re.search(r'part="(\w+)"', line)[1] for line in TASK.findall(text)]
    runs = 1 + sum(a != b for a, b in zip(ipus, ipus[1:]))
    assert len(parts) - parts.count("backward") == runs
    if kind == "scaled" and training:  # the backward pass reads the scaled weight
        return
    assert max(map(int, STASH.findall(text)), default=0) <= 4 * ROWS * COLUMNS
