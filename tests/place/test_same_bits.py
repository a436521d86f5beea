"""Blocks and strategies say where a program runs; its numbers are those of the plain model.

Passes that compute several ops in one, and round once, join no ops of different IPUs. Where bits
are compared these passes are off.
"""

import copy
import dataclasses
import random

import pytest
import torch

import poptorch
from tests.helpers import check_equal_bits, quiet_options
from tests.networks import harness
from tests.networks.zoo import NETWORKS, build

IPUS = 4
ROUND_ONCE = "fuse_batch_norm,fuse_convolution"
LIVENESS = list(poptorch.Liveness)


@pytest.fixture
def round_each_op(monkeypatch):
    """Every op is rounded by itself."""
    monkeypatch.setenv("POPTORCH_OFF", ROUND_ONCE)


def annotated(network, seed, names=False):
    """The network with a block for each innermost module, on a random IPU each."""
    draw = random.Random(seed)
    module = copy.deepcopy(network.module)
    leaves = [leaf for leaf in module.modules() if not list(leaf.children())]
    for number, leaf in enumerate(leaves):
        user_id = f"{number % IPUS}" if names else None
        poptorch.BeginBlock(leaf, user_id, None if names else draw.randrange(IPUS))
    return dataclasses.replace(network, module=module)


def both(network, batches, **settings):
    """Runs of training and of inference."""
    return harness.train(network, batches, **settings), harness.infer(network, batches, **settings)


class Residual(torch.nn.Module):
    """A batch norm and what follows it, each in a block of its own if there are blocks."""

    def __init__(self, has_blocks):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.has_blocks = has_blocks

    def forward(self, x):
        y = self.norm(self.conv(x))
        if self.has_blocks:
            poptorch.Block.start("add", ipu_id=1)
        y = y + x
        if self.has_blocks:
            poptorch.Block.start("relu", ipu_id=0)
        y = torch.relu(y)
        return y, poptorch.identity_loss(y.float().square(), "mean")


@pytest.mark.sampled
@pytest.mark.parametrize("name", NETWORKS)
def test_sharded_networks(name, seed, round_each_op):
    network = build(name, seed)
    batches = network.batches(2, seed)
    plain = both(network, batches)
    stages = random.Random(seed).choice(list(poptorch.AutoStage))
    strategy = poptorch.ShardedExecution(stages)
    blocks = annotated(network, seed)
    check_equal_bits(both(blocks, batches, setExecutionStrategy=strategy, autoRoundNumIPUs=True),
                     plain)


@pytest.mark.sampled
@pytest.mark.parametrize("name", NETWORKS)
def test_phased_networks(name, seed, round_each_op):
    network = build(name, seed)
    batches = network.batches(2, seed)
    plain = both(network, batches)
    draw = random.Random(seed)
    if draw.random() < 0.3:
        strategy = poptorch.ParallelPhasedExecution(["0"], ["1"], ["2"], ["3"])
    else:
        strategy = poptorch.SerialPhasedExecution(
            [poptorch.Stage("0"), poptorch.Stage("1")], ["2"], ["3"])
        strategy.setTensorsLiveness(draw.choice(LIVENESS))
    strategy.useSeparateBackwardPhase(draw.random() < 0.5)
    blocks = annotated(network, seed, names=True)
    check_equal_bits(both(blocks, batches, setExecutionStrategy=strategy, autoRoundNumIPUs=True),
                     plain)


@pytest.mark.sampled
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_off_the_chip(name, seed):
    network = build(name, seed)
    batches = network.batches(2, seed)
    plain = both(network, batches)
    draw = random.Random(seed)
    setters = [f"set{kind}Location" for kind in ("Weight", "Optimizer", "Activation")]
    locations = {setter: poptorch.TensorLocationSettings().useOnChipStorage(False)
                 .minElementsForOffChip(draw.choice((0, 2, 100)))
                 for setter in draw.sample(setters, draw.randint(1, 3))}
    check_equal_bits(both(network, batches, **locations), plain)


@pytest.mark.parametrize("is_training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_is_on_two_ipus_is_rounded_apart(dtype, is_training, monkeypatch):
    """The addition to a batch norm, which is computed with it where both are on one IPU."""
    x, plain = torch.randn(4, 8, 9, 9, dtype=dtype), Residual(False).to(dtype)
    runs = []
    for has_blocks in (False, True):
        monkeypatch.setenv("POPTORCH_OFF", "" if has_blocks else ROUND_ONCE)
        net = Residual(has_blocks).to(dtype)
        net.load_state_dict(plain.state_dict())
        options = quiet_options(setExecutionStrategy=poptorch.ShardedExecution())
        model = poptorch.trainingModel(net, options) if is_training else \
            poptorch.inferenceModel(net.eval(), options)
        results = [model(x) for _ in range(3)]
        runs.append({"results": results, "state": dict(model.state_dict())})
    check_equal_bits(*runs)


@pytest.mark.parametrize("strategy", [
    poptorch.PipelinedExecution("0", "1", "2", "3"),
    poptorch.ShardedExecution(poptorch.Stage("0", "1"), poptorch.Stage("2", "3").ipu(1)),
    poptorch.SerialPhasedExecution(["0", "1"], ["2", "3"])], ids=lambda s: type(s).__name__)
def test_accumulation_and_replicas(strategy, seed):
    name = next(iter(NETWORKS))
    network = build(name, seed)
    settings = {"gradientAccumulation": 7, "deviceIterations": 2, "replicationFactor": 2,
                "broadcastBuffers": False, "autoRoundNumIPUs": True}
    batches = [harness.concatenate(network.batches(28, seed))]
    plain = harness.train(network, batches, **settings)
    blocks = annotated(network, seed, names=True)
    check_equal_bits(harness.train(blocks, batches, setExecutionStrategy=strategy, **settings),
                     plain)


class LoopFromWeights(torch.nn.Module):
    """A loop that begins with a weight, in a block of its own."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.arange(4.0))
        self.v = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        with poptorch.Block("first", ipu_id=0):
            y = x * self.v
        with poptorch.Block("second", ipu_id=1):
            z = poptorch.for_loop(2, lambda a, b: [a * b, b], [self.w, y])[0]
        return z, poptorch.identity_loss(z.sum(), "none")


def test_a_loop_that_begins_with_a_weight_in_streaming_memory():
    """The body takes it on the chip, so that it is loaded before."""
    found = []
    for strategy in (poptorch.ShardedExecution(),
                     poptorch.ParallelPhasedExecution(["first"], ["second"])):
        net = LoopFromWeights()
        options = quiet_options().setExecutionStrategy(strategy)
        model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), 0.1))
        results = [model(torch.arange(4.0) + 1) for _ in range(2)]
        model.copyWeightsToHost()
        found.append((results, net.state_dict()))
    check_equal_bits(*found)
