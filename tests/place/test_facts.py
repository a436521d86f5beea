"""The placed program says how it runs: its strategy, and what crosses between IPUs."""

import re

import pytest
import torch

import poptorch
from poptorch._reports.schedule import Schedule
from tests.helpers import quiet_options


class Net(torch.nn.Module):
    """Two layers, each on an IPU."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        with poptorch.Block("first", ipu_id=0):
            x = torch.relu(self.first(x))
        with poptorch.Block("second", ipu_id=1):
            x = self.second(x)
            return x, poptorch.identity_loss(x.square(), "mean")


def placed(strategy, optimizer=torch.optim.Adam, net=Net, **settings):
    """The text of a training program whose micro-batch has 2 rows."""
    settings = {"Training__gradientAccumulation": 3, "setExecutionStrategy": strategy, **settings}
    module = net()
    model = poptorch.trainingModel(module, quiet_options(**settings),
                                   optimizer(list(module.parameters()), lr=0.1))
    model.compile(torch.ones(2 * settings["Training__gradientAccumulation"], 4))
    return model.ir("place")


def test_pipelined_and_sharded_programs_differ():
    pipelined, sharded = (placed(strategy, Training__recomputation=poptorch.Recomputation.Off)
                          for strategy in (poptorch.PipelinedExecution(),
                                           poptorch.ShardedExecution()))
    assert '  strategy {kind="pipelined", recomputation="off", stages=2}\n' in pipelined
    assert '  strategy {kind="sharded", recomputation="off", stages=2}\n' in sharded
    grouped = ', pipeline="grouped"}'
    assert grouped in pipelined
    in_turn = pipelined.replace("pipelined", "sharded").replace(
        grouped, ', pipeline="sequential"}')
    numbers = r"\b(offset|depth)=\d+"
    assert in_turn != sharded and re.sub(numbers, "", in_turn) == re.sub(numbers, "", sharded)


def test_every_step_keeps_the_strategy():
    options = quiet_options(setExecutionStrategy=poptorch.ShardedExecution())
    model = poptorch.inferenceModel(Net().eval(), options)
    model.compile(torch.ones(2, 4))
    for step in ("place", "lower", "schedule", "plan"):
        assert len(re.findall(r'^  strategy \{kind="sharded",', model.ir(step), re.M)) == 1


class WithoutBlocks(Net):
    """The same layers on one IPU."""

    def forward(self, x):
        x = self.second(torch.relu(self.first(x)))
        return x, poptorch.identity_loss(x.square(), "mean")


@pytest.mark.parametrize(("net", "rest"), [
    (Net, 'kind="pipelined", stages=2'), (WithoutBlocks, 'kind="sharded", stages=1')])
def test_tiles_that_only_transfer(net, rest):
    text = placed(poptorch.PipelinedExecution(), net=net, TensorLocations__numIOTiles=32)
    assert f"  strategy {{io_tiles=32, {rest}}}\n" in text


@pytest.mark.parametrize(("pattern", "word"), [
    (poptorch.SyncPattern.SinglePipeline, "single_pipeline"),
    (poptorch.SyncPattern.ReplicaAndLadder, "replica_and_ladder")])
def test_which_ipus_meet(pattern, word):
    full, other = (placed(poptorch.PipelinedExecution(), **settings)
                   for settings in ({}, {"syncPattern": pattern}))
    assert "sync" not in full.split("graph iteration")[0]
    assert f'  strategy {{kind="pipelined", stages=2, sync="{word}"}}\n' in other
    assert Schedule(full).sync == "full" and Schedule(other).sync == word


def test_a_program_without_blocks_has_no_strategy():
    assert "strategy" not in placed(poptorch.PipelinedExecution(), net=WithoutBlocks)


@pytest.mark.parametrize("accumulation", [3, 4])
@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
def test_no_zeros_cross_between_ipus(optimizer, accumulation):
    """Nor anything else that needs no operands: each IPU makes its own."""
    text = placed(poptorch.ShardedExecution(), optimizer,
                  Training__gradientAccumulation=accumulation)
    copied = []
    for graph in re.split(r"^graph ", text, flags=re.M):
        made = {name: op for names, op in re.findall(r"^  (%.*?) = (\w+)", graph, re.M)
                for name in names.split(", ")}
        copied += [(made[name], int(size)) for name, size in
                   re.findall(r"= ipu_copy (%\S+) \{bytes=(\d+)", graph)]
    assert {op for op, _ in copied}.isdisjoint({"arange", "constant", "full"}), text
    # The hidden layer, its gradient, and of the update the settings and the count of updates.
    bytes_each = {torch.optim.Adam: [4, 40, 64, 64], torch.optim.SGD: [4, 32, 64, 64]}
    assert sorted(size for _, size in copied) == bytes_each[optimizer], copied


def test_accumulators_begin_where_they_are():
    """The zeros are made on the IPU of each accumulator: no copy carries them."""
    text = placed(poptorch.PipelinedExecution(), Training__gradientAccumulation=4)
    before = text.split("graph iteration")[1].split(" = loop ")[0]
    assert "ipu_copy" not in before
    assert set(re.findall(r"= (?:constant|full) .*ipu=(\d)", before)) == {"0", "1"}
