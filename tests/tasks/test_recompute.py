"""Stages that compute again: what they keep, and that nothing else changes."""

import re

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import poptorch
from poptorch import _C
from poptorch.enums import Recomputation
from tests.fuzz.judge import budget
from tests.helpers import check_equal_bits, quiet_options
from tests.tasks.test_models import COLUMNS, Net, compiled, programs

BODY = re.compile(r"^graph (\S+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
MOVE = re.compile(r"%(\S+) = (?:stash|remote_store|remote_load) %(\S+) ")
TASK = re.compile(
    r"^  (?:(%.*) = )?task ?(.*?) ?\{body=@(\S+?)[,}].*part=\"(\w+)\"", re.MULTILINE)
# What a stage does not compute: its inputs, what comes from the host, and assigned states.
KEPT = {"input", "stream_in", "state"}


def kept_ops(text):
    """The op that makes each forward value that is kept for a backward task, as lines of text."""
    bodies, source, moved = dict(BODY.findall(text)), {}, dict(MOVE.findall(text))
    kept = set()
    for results, operands, body, part in TASK.findall(text):
        kept |= {one[1:] for one in operands.split(", ") if one and part == "backward"} & set(moved)
        outputs = re.search(r"^  output (.*)$", bodies[body], re.MULTILINE)
        for name, inner in zip(results.split(", "), outputs[1].split(", ") if results else ()):
            made = re.search(rf"^  .*{re.escape(inner)}(?:,.*)? = .*$", bodies[body], re.MULTILINE)
            source[name] = made[0]
    while kept & set(moved):
        kept = {moved.get(value, value) for value in kept}
    lines = [source[f"%{value}"] for value in kept if f"%{value}" in source]
    # A task of both parts gives gradients, such as those of a tied weight.
    return [line for line in lines if 'part="backward"' not in line]


def opname(line):
    return line.split(" = ")[1].split()[0]


class Pair:
    """Compiles each program in one piece and in tasks that recompute. The CPU runs the same, except
    for moves to streaming memory."""

    def __init__(self, monkeypatch, is_off_chip):
        self.steps = () if is_off_chip else ("lower", "plan")
        self.compile, self.placed = _C.compile, []
        monkeypatch.setattr(_C, "compile", self)

    def __call__(self, module, options, progress, placed):
        text = module.text()
        plain, cut = (self.compile(_C.parse(text, module), {**options, "cut_tasks": is_cut})
                      for is_cut in (False, True))
        for step in self.steps:
            assert cut.ir(step) == plain.ir(step)
        text = cut.ir("place")
        assert _C.parse(text).text() == text
        self.placed.append(text)
        return self.compile(module, options, progress, placed)


@budget(10)
@given(programs(), st.integers(0, 2**20))
def test_models(program, seed):
    layers, blocks, strategy, accumulation, kind, is_off_chip = program
    assume(kind in ("pipelined", "sharded"))
    accumulation = 7 if kind == "pipelined" else accumulation
    x = torch.randn(2 * accumulation, COLUMNS, generator=torch.Generator().manual_seed(seed))
    runs = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("POPTORCH_OFF", "fuse_batch_norm,fuse_convolution")
        for recomputation in (Recomputation.Off, Recomputation.Stages):
            if recomputation is not Recomputation.Off:
                pair = Pair(monkeypatch, is_off_chip)
            net = Net(layers, blocks)
            model = compiled(net, strategy, accumulation, True, is_off_chip, recomputation)
            results = [model(x) for _ in range(2)]
            model.copyWeightsToHost()
            runs.append((results, net.state_dict()))
    check_equal_bits(*runs)
    for text in pair.placed:
        if 'cyclic=true' not in text and not is_off_chip:
            assert {opname(line) for line in kept_ops(text)} <= KEPT, text


class Wide(torch.nn.Module):
    """Two stages whose activations are wider than what goes from stage to stage."""

    def __init__(self, marks=False):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Dropout(0.5),
            torch.nn.Linear(32, 8)) for _ in range(3))
        self.marks = marks

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            poptorch.Block.start(f"stage {number}", ipu_id=number)
            x = layer[1](layer[0](x))
            if self.marks:
                x = poptorch.recomputationCheckpoint(x)
            x = layer[3](layer[2](x))
        return x, poptorch.identity_loss(x.square().mean(), "none")


def trained(marks=False, schedule=poptorch.PipelineSchedule.Grouped, recomputation=None,
            off_chip=False):
    options = quiet_options(Training__gradientAccumulation=6, autoRoundNumIPUs=True)
    options.setExecutionStrategy(poptorch.PipelinedExecution().schedule(schedule))
    if recomputation is not None:
        options.Training.recomputation(recomputation)
    if off_chip:
        options.TensorLocations.setActivationLocation(
            poptorch.TensorLocationSettings().useOnChipStorage(False))
    model = poptorch.trainingModel(Wide(marks), options)
    model.compile(torch.randn(12, 8))
    return model


def stash_bytes(model, memory="chip"):
    """By stage: micro-batches that it keeps times their bytes."""
    return {edge.source: edge.depth * edge.bytes for edge in model.schedule().edges
            if edge.target == f"{edge.source}.back" and edge.memory == memory}


@pytest.mark.parametrize("schedule", poptorch.PipelineSchedule, ids=lambda one: one.name)
def test_bytes(schedule):
    off = trained(schedule=schedule, recomputation=Recomputation.Off)
    auto = trained(schedule=schedule)
    inputs = 2 * 8 * 4 + 16  # of a stage: two rows, and the random state
    assert {edge.bytes for edge in auto.schedule().edges
            if edge.target == f"{edge.source}.back"} == {inputs}
    kept, recomputed = stash_bytes(off), stash_bytes(auto)
    assert kept.keys() == recomputed.keys()
    assert all(recomputed[stage] < kept[stage] for stage in kept)
    assert auto.ir("plan") == off.ir("plan").replace(', recomputation="off"', "")


def test_checkpoint_is_kept():
    model = trained(marks=True)
    kept = [line for line in kept_ops(model.ir("place")) if opname(line) not in KEPT]
    assert kept and all("checkpoint=true" in line for line in kept)


def _computing(model):
    return sum(row.end - row.begin for row in model.timeline().rows if row.kind == "compute")


def test_work():
    """A stage that computes again does its forward work twice, but for what it does not need."""
    off, auto = (trained(recomputation=how) for how in (Recomputation.Off, None))
    forward = {task.name: task.flops for task in auto.schedule().tasks if task.part == "forward"}
    for before, after in zip(off.schedule().tasks, auto.schedule().tasks):
        assert before.name == after.name
        if after.part != "backward":
            assert before.flops == after.flops
            continue
        stage = after.name.removesuffix(".back")
        assert before.flops < after.flops < before.flops + forward[stage]
    assert _computing(off) < _computing(auto)


@pytest.mark.parametrize("recomputation", [Recomputation.Off, Recomputation.Auto])
def test_streaming_memory(recomputation):
    """What is kept in streaming memory is not on the chip; the random state stays there."""
    chip, off = (trained(recomputation=recomputation, off_chip=is_off)
                 for is_off in (False, True))
    for stage, size in stash_bytes(chip).items():
        depth = next(edge.depth for edge in off.schedule().edges
                     if edge.target == f"{stage}.back" and edge.source == stage)
        assert stash_bytes(off)[stage] == 16 * depth
        assert size > 16 * depth
    assert stash_bytes(off, "streaming")


def test_inputs_may_be_larger():
    """A stage with a wide input and a narrow result keeps more when it computes again."""
    class Narrow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            poptorch.Block.start("narrow", ipu_id=0)
            x = torch.tanh(x[:, :4] + x[:, 4:8])
            x = self.layer(x)
            poptorch.Block.start("last", ipu_id=1)
            return x, poptorch.identity_loss(x.square().mean(), "none")

    sizes = []
    for recomputation in (Recomputation.Off, Recomputation.Auto):
        options = quiet_options(Training__gradientAccumulation=6)
        options.Training.recomputation(recomputation)
        model = poptorch.trainingModel(Narrow(), options)
        model.compile(torch.randn(12, 64))
        sizes.append(sum(stash_bytes(model).values()))
    assert sizes[0] < sizes[1]


def test_unknown():
    text = """graph main {
  strategy {blocks=[["a", 0, 0], ["b", 1, 1]], kind="pipelined", recomputation="always"}
  loop {body=@micro, count=4}
  output
}

graph micro {
  output
}
"""
    message = ('[place] there is no recomputation "always". It is one of auto, off, stages.')
    with pytest.raises(poptorch.Error, match=re.escape(message)):
        _C.compile(_C.parse(text), {}, None)


@pytest.mark.parametrize("recomputation", [Recomputation.Off, Recomputation.Auto])
def test_cpu_moves_what_crosses(recomputation):
    """Values that no task keeps any more are not moved to streaming memory."""
    model = trained(recomputation=recomputation, off_chip=True)
    placed, lowered = (sorted(re.findall(r"%(\S+) = remote_(\w+) ", model.ir(step)))
                       for step in ("place", "lower"))
    assert placed == lowered and placed


@pytest.mark.parametrize("off_chip", [False, True])
def test_save_and_load(off_chip, tmp_path):
    """A loaded program recomputes as the saved one, with the same random state."""
    model, x = trained(off_chip=off_chip), torch.randn(12, 8)
    model(x)
    again = poptorch.load(model.save(tmp_path / "net.poptorch"))
    assert again.ir("place") == model.ir("place") and "recompute=1" in again.ir("place")
    assert again.schedule().edges == model.schedule().edges
    check_equal_bits([model(x), model(x)], [again(x), again(x)])
    for one in (model, again):
        one.copyWeightsToHost()
    check_equal_bits(model.state_dict(), again.state_dict())
