"""Random models in tasks: nothing is lost, done twice or changed."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from poptorch import _C
from tests.fuzz.judge import budget
from tests.helpers import check_equal_bits, quiet_options

COLUMNS = 4
LAYERS = ["linear", "tanh", "dropout", "norm", "tied", "loop", "skip", "loss", "sum"]
# What each task that reads it makes for itself.
EVERYWHERE = {"constant", "full", "arange", "state", "remote_load"}
SIZES = {"f32": 4, "i32": 4, "i64": 8, "f64": 8, "bool": 1, "i8": 1}
OP = re.compile(r"^  (?:(?P<results>%.*?) = )?(?P<op>\w+)(?P<rest> .*)$", re.MULTILINE)


class Net(torch.nn.Module):
    """Layers, each in the block that ``blocks`` names; None: there are no blocks."""

    def __init__(self, layers, blocks):
        super().__init__()
        self.names, self.blocks = layers, blocks
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.tied = torch.nn.Linear(COLUMNS, COLUMNS)
            self.layers = torch.nn.ModuleList(
                torch.nn.BatchNorm1d(COLUMNS) if name == "norm" else
                torch.nn.Linear(COLUMNS, COLUMNS) for name in layers)

    def one(self, name, layer, x, before):
        if name in ("linear", "norm"):
            return layer(x)
        if name == "loop":
            return poptorch.for_loop(2, lambda a: [torch.nn.functional.dropout(layer(a), 0.25)],
                                     [x])[0]
        return {"tanh": torch.tanh, "tied": self.tied, "skip": lambda x: x + before[0],
                "dropout": lambda x: torch.nn.functional.dropout(x, 0.5, self.training),
                "sum": lambda x: x + sum(before), "loss": lambda x: x}[name](x)

    def forward(self, x):
        before, losses = [x], []
        for number, (name, layer) in enumerate(zip(self.names, self.layers)):
            if self.blocks is not None:
                poptorch.Block.start(self.blocks[number])
            x = self.one(name, layer, x, before)
            before.append(x)
            if self.training and (name == "loss" or number == len(self.names) - 1):
                losses.append(x.square().mean())
        return (x, poptorch.identity_loss(sum(losses), "none")) if losses else x


@st.composite
def programs(draw):
    layers = ["linear", *draw(st.lists(st.sampled_from(LAYERS), min_size=2, max_size=7))]
    names = "ABCD"[:draw(st.integers(2, 4))]
    blocks = sorted(draw(st.sampled_from(names)) for _ in layers)
    if draw(st.integers(0, 4)) == 0:
        blocks = draw(st.permutations(blocks))
    used = [name for name in names if name in blocks]
    kind = draw(st.sampled_from(["sharded", "pipelined", "pipelined", "serial", "parallel"]))
    ipus = [draw(st.integers(0, 1)) if draw(st.booleans()) else number
            for number in range(len(used))]
    stages = [poptorch.Stage(name) for name in used]
    if kind in ("sharded", "pipelined"):
        for stage, ipu in zip(stages, ipus):
            stage.ipu(ipu)
        strategy = {"sharded": poptorch.ShardedExecution,
                    "pipelined": poptorch.PipelinedExecution}[kind](*stages)
    elif kind == "serial":
        strategy = poptorch.SerialPhasedExecution([[stage] for stage in stages])
        strategy.setTensorsLiveness(draw(st.sampled_from(list(poptorch.Liveness))))
    else:
        strategy = poptorch.ParallelPhasedExecution([[stage] for stage in stages])
    if kind in ("serial", "parallel"):
        blocks = sorted(blocks)  # what is in a phase does not wait for a later one
        strategy.useSeparateBackwardPhase(draw(st.booleans()))
    if kind == "pipelined":
        strategy.schedule(draw(st.sampled_from(poptorch.PipelineSchedule)))
    return layers, blocks, strategy, draw(st.sampled_from([1, 7])), kind, draw(st.booleans())


def compiled(net, strategy, accumulation, training, is_off_chip=False,
             recomputation=poptorch.Recomputation.Off):
    if strategy is not None and isinstance(strategy, poptorch.PipelinedExecution):
        accumulation = 7
    settings = {"autoRoundNumIPUs": True, "deviceIterations": 1 if training else 4}
    if strategy is not None:
        settings["setExecutionStrategy"] = strategy
    if training:
        options = quiet_options(Training__gradientAccumulation=accumulation, **settings)
        options.randomSeed(3).Training.recomputation(recomputation)
        options.TensorLocations.setActivationLocation(
            poptorch.TensorLocationSettings().useOnChipStorage(not is_off_chip))
        return poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), 0.125))
    return poptorch.inferenceModel(net.eval(), quiet_options(**settings).randomSeed(3))


class Pair:
    """Compiles each program with tasks and without, and compares them."""

    def __init__(self, monkeypatch):
        self.compile, self.placed = _C.compile, []
        monkeypatch.setattr(_C, "compile", self)

    def __call__(self, module, options, progress, placed):
        text = module.text()
        plain, cut = (self.compile(_C.parse(text, module), {**options, "cut_tasks": is_cut})
                      for is_cut in (False, True))
        for step in ("lower", "plan"):
            assert cut.ir(step) == plain.ir(step)
        check_text(cut.ir("place"), plain.ir("place"))
        self.placed.append(cut.ir("place"))
        return self.compile(module, options, progress, placed)


def check_text(cut, plain):
    """Each op is in one task, or at its place in the graph; edges have the bytes of their value."""
    copies = {}
    for found in OP.finditer(cut):
        position = re.search(r"\bposition=(\d+)", found["rest"])
        if position:
            copies.setdefault((int(position[1]), found["op"]), []).append(found[0])
        if found["op"] in ("ipu_copy", "stash", "remote_store", "remote_load"):
            dtype, sizes = re.search(r" : (\w+)\[([\d,]*)\]", found["rest"]).groups()
            count = SIZES[dtype]
            for size in filter(None, sizes.split(",")):
                count *= int(size)
            assert f"bytes={count}," in found["rest"], found[0]
    assert not [lines for (_, op), lines in copies.items()
                if len(lines) > 1 and op not in EVERYWHERE]
    if not copies:
        assert cut == plain
        return
    text = re.sub(r"(?m)^  .*= ?task .*\n", "", cut)
    for (position, _), lines in copies.items():
        assert all(line in text for line in lines), position
    module = _C.parse(plain)
    _C.cut_tasks(module)
    _C.schedule_tasks(module)
    assert module.text() == cut


@budget(10)
@given(programs(), st.booleans(), st.integers(0, 2**20))
def test_models(program, training, seed):
    layers, blocks, strategy, accumulation, kind, is_off_chip = program
    accumulation = 7 if kind == "pipelined" else accumulation
    x = torch.randn(2 * (accumulation if training else 4), COLUMNS,
                    generator=torch.Generator().manual_seed(seed))
    runs = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("POPTORCH_OFF", "fuse_batch_norm,fuse_convolution")
        for strategy_of_run in (strategy, None):
            if strategy_of_run is not None:
                pair = Pair(monkeypatch)
            net = Net(layers, blocks if strategy_of_run is not None else None)
            model = compiled(net, strategy_of_run, accumulation, training, is_off_chip)
            results = [model(x) for _ in range(2)]
            model.copyWeightsToHost()
            runs.append((results, net.state_dict()))
    check_equal_bits(*runs)
    is_in_turn = "cyclic=true" in pair.placed[0]
    assert not is_in_turn or (kind == "pipelined" and list(blocks) != sorted(blocks))


# The backward pass of a loop was in the block after the loop, so that stage 1 passed a gradient to
# stage 0 and got it back.
def test_backward_pass_of_a_loop_is_in_the_block_of_the_loop():
    net = Net(["linear", "loop", "sum"], ["A", "A", "B"])
    strategy = poptorch.PipelinedExecution(poptorch.Stage("A").ipu(0), poptorch.Stage("B").ipu(1))
    model = compiled(net, strategy, 7, True)
    model.compile(torch.randn(14, COLUMNS))
    assert "cyclic" not in model.ir("place")
