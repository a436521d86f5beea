"""The placed program of each example of blocks and strategies, as golden text."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import poptorch
from poptorch import AutoStage, Phase, Stage
from tests.helpers import check_golden

FOLDER = Path(__file__).parent / "examples"


class Layers(nn.Module):
    """Layers, each in the block that ``blocks`` gives: ``(user_id, ipu_id)``."""

    def __init__(self, *blocks):
        super().__init__()
        self.blocks = blocks
        self.layers = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in blocks)

    def forward(self, x):
        poptorch.Block.useAutoId()
        for layer, (user_id, ipu_id) in zip(self.layers, self.blocks):
            with poptorch.Block(user_id, ipu_id):
                x = layer(x)
                if self.training and layer is self.layers[-1]:
                    return x, poptorch.identity_loss(x, "sum")
        return x


def named(*names):
    return [(name, None) for name in names]


def on_ipus(*ipus):
    return [(None, ipu) for ipu in ipus]


def serial(liveness=poptorch.Liveness.AlwaysLive):
    strategy = poptorch.SerialPhasedExecution([
        Phase(Stage("A"), Stage("A2")), Phase(Stage("B"), Stage("B2")),
        Phase(Stage("C"), Stage("C2"))])
    for phase in range(3):
        strategy.phase(phase).ipus(0, 1)
    return strategy.setTensorsLiveness(liveness)


def parallel():
    strategy = poptorch.ParallelPhasedExecution([
        Phase(Stage("0"), Stage("1")), Phase(Stage("2"), Stage("3")),
        Phase(Stage("4"), Stage("5"))])
    strategy.phase(0).ipus(0, 2)
    strategy.phase(1).ipus(1, 3)
    strategy.phase(2).ipus(0, 2)
    return strategy


SIX = named("A", "A2", "B", "B2", "C", "C2")
CASES = {
    "same_as_ipu": (on_ipus(0, 1, 0), poptorch.PipelinedExecution(AutoStage.SameAsIpu)),
    "auto_increment": (on_ipus(0, 1, 0), poptorch.PipelinedExecution(AutoStage.AutoIncrement)),
    "sharded_by_ipu": (on_ipus(0, 1, 2), poptorch.ShardedExecution()),
    "pipelined_by_name": (named(*"ABCD"), poptorch.PipelinedExecution(*"ABCD")),
    "pipelined_stages": (named(*"ABCD"), poptorch.PipelinedExecution(Stage("A", "B"),
                                                                     Stage("C", "D"))),
    "pipelined_by_ipu": (on_ipus(0, 1, 2, 3), poptorch.PipelinedExecution()),
    "phase_of_stages": (named("A", "B"), poptorch.SerialPhasedExecution(
        Phase(Stage("A").ipu(0), Stage("B").ipu(1)))),
    "phase_of_blocks": (named("A", "B"), poptorch.SerialPhasedExecution(Phase("A", "B"))),
    "serial_phased": (SIX, serial()),
    "serial_phased_separate_backward": (SIX, serial().useSeparateBackwardPhase(True)),
    "off_chip_after_fwd": (SIX, serial(poptorch.Liveness.OffChipAfterFwd)),
    "off_chip_after_fwd_no_overlap": (SIX, serial(poptorch.Liveness.OffChipAfterFwdNoOverlap)),
    "off_chip_after_each_phase": (SIX, serial(poptorch.Liveness.OffChipAfterEachPhase)),
    "parallel_phased": (on_ipus(*[None] * 6), parallel()),
}


def compiled(blocks, strategy, training):
    options = poptorch.Options().showCompilationProgressBar(False).autoRoundNumIPUs()
    options.setExecutionStrategy(strategy).deviceIterations(4)
    module = Layers(*blocks)
    if not training:
        model = poptorch.inferenceModel(module.eval(), options)
        model.compile(torch.ones(4, 2))
        return model
    options.Training.gradientAccumulation(7)
    model = poptorch.trainingModel(module, options, torch.optim.SGD(module.parameters(), lr=0.1))
    model.compile(torch.ones(28, 2))
    return model


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", CASES)
def test_example(name, training, update):
    text = compiled(*CASES[name], training).ir("place")
    text = re.sub(r"  // .*", "", text)  # paths of this machine
    check_golden(FOLDER / f"{name}.{'training' if training else 'inference'}.ir", text, update)


def spots(model):
    """(ipu, stage, phase) of the matrix products of the forward pass, in order."""
    found = []
    for line in model.ir("place").splitlines():
        if " matmul " in line and "backward" not in line:
            found.append(tuple(int(number) for name in ("ipu", "stage", "phase")
                               for number in re.findall(rf"\b{name}=(\d+)", line)))
    return found


@pytest.mark.parametrize(("name", "expected"), [
    ("same_as_ipu", [(0, 0), (1, 1), (0, 0)]),
    ("auto_increment", [(0, 0), (1, 1), (0, 2)]),
    ("sharded_by_ipu", [(0, 0), (1, 1), (2, 2)]),
    ("pipelined_by_name", [(0, 0), (1, 1), (2, 2), (3, 3)]),
    ("pipelined_stages", [(0, 0), (0, 0), (1, 1), (1, 1)]),
    ("pipelined_by_ipu", [(0, 0), (1, 1), (2, 2), (3, 3)]),
    ("phase_of_stages", [(0, 0, 0), (1, 1, 0)]),
    ("phase_of_blocks", [(0, 0, 0), (0, 0, 0)]),
    ("serial_phased", [(0, 0, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1), (0, 0, 2), (1, 1, 2)]),
    ("off_chip_after_each_phase",
     [(0, 0, 0), (1, 1, 0), (0, 0, 4), (1, 1, 4), (0, 0, 8), (1, 1, 8)]),
    ("parallel_phased", [(0, 0, 0), (2, 1, 0), (1, 0, 1), (3, 1, 1), (0, 0, 2), (2, 1, 2)]),
])
def test_places_of_the_examples(name, expected):
    assert spots(compiled(*CASES[name], training=False)) == expected


@pytest.mark.parametrize(("separate", "expected"), [(False, [2, 3, 4]), (True, [4, 5, 6])])
@pytest.mark.parametrize(("blocks", "make"), [(SIX, serial), (on_ipus(*[None] * 6), parallel)],
                         ids=["serial", "parallel"])
def test_backward_phases(separate, expected, blocks, make):
    strategy = make().useSeparateBackwardPhase(separate)
    text = compiled(blocks, strategy, training=True).ir("place")
    found = {int(n) for n in re.findall(r'matmul .*part="backward".*phase=(\d+)', text)}
    assert sorted(found) == expected


class Exchanging(nn.Module):
    """Operations whose names are like those of the update, in the first of two phases."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x, start):
        with poptorch.Block("A"):
            x = poptorch.dynamic_update(x * self.weight, x[:1], 0, start, 1)
            x, = poptorch.custom_op([x], "ReplicatedAllReduceTP", "ai.graphcore", 1, [x])
        with poptorch.Block("B"):
            return x, poptorch.identity_loss(torch.exp(x), "sum")


def test_what_forward_computes_is_in_its_phase():
    options = poptorch.Options().showCompilationProgressBar(False).replicationFactor(2)
    options.setExecutionStrategy(poptorch.SerialPhasedExecution(Phase("A"), Phase("B")))
    net = Exchanging()
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=0.1))
    model.compile(torch.ones(8, 2), torch.zeros(2, dtype=torch.int32))
    forward = [line for line in model.ir("place").splitlines() if "backward" not in line]
    for name in ("dynamic_update", "all_reduce"):
        line, = (line for line in forward if f" {name} " in line)
        assert "phase=0" in line, line
    assert model.op_report()["forward"]["dynamic_update"] == 1
