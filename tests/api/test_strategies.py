"""Stages, phases and strategies as objects, and what they say about models that break a rule."""

import copy
import logging

import pytest
import torch
from torch import nn

import poptorch
from poptorch import AutoStage, Phase, Stage
from poptorch._translate import partition
from tests.helpers import ROOT, quiet_options

ALL = [poptorch.PipelinedExecution, poptorch.ShardedExecution, poptorch.SerialPhasedExecution,
       poptorch.ParallelPhasedExecution]


@pytest.mark.parametrize(("make", "error", "words"), [
    (lambda: Stage(), ValueError, "expected at least one block id"),
    (lambda: Stage(1.5), TypeError, "named by a str .or an int., got float 1.5"),
    (lambda: Stage("A", "B", "A"), ValueError, "A stands there more than once: A, B, A"),
    (lambda: Stage("A").ipu("0"), TypeError, "int of at least 0, got str '0'"),
    (lambda: Stage("A").ipu(-1), ValueError, "at least 0, got -1"),
    (lambda: Phase(), ValueError, "at least one stage or block id"),
    (lambda: Phase("A", Stage("B")), TypeError, "stages and block ids are mixed"),
    (lambda: Phase(Stage("A"), Stage("A")), ValueError, "A stands there more than once"),
    (lambda: Phase(Stage("A"), Stage("B")).ipus(0), ValueError, "got 1 IPUs for 2 stages"),
    (lambda: Phase(Stage("A"), Stage("B")).ipus(1, 1), ValueError, "one IPU stands there twice"),
    (lambda: Phase("A").ipus(None), TypeError, "got NoneType None"),
    (lambda: poptorch.ShardedExecution(3.5), TypeError, "got float 3.5"),
    (lambda: poptorch.ShardedExecution("A", Stage("A")), ValueError, "A stands there more"),
    (lambda: poptorch.PipelinedExecution("A", AutoStage.SameAsIpu), TypeError, "one AutoStage"),
    (lambda: poptorch.PipelinedExecution(Phase("A")), TypeError, "or stages and block ids"),
    (lambda: poptorch.PipelinedExecution("A").schedule("grouped"), TypeError,
     "PipelinedExecution.schedule. expected one of PipelineSchedule.Grouped"),
    (lambda: poptorch.SerialPhasedExecution(), ValueError, "at least one phase"),
    (lambda: poptorch.SerialPhasedExecution(7), TypeError, "lists of stages or of block ids"),
    (lambda: poptorch.SerialPhasedExecution("A").phase(1), ValueError, "an int from 0 to 0, got"),
    (lambda: poptorch.SerialPhasedExecution("A").phase("0"), TypeError, "from 0 to 0, got str"),
    (lambda: poptorch.SerialPhasedExecution("A").setTensorsLiveness(1), TypeError,
     "Liveness.AlwaysLive, Liveness.OffChipAfterFwd"),
    (lambda: poptorch.SerialPhasedExecution("A").useSeparateBackwardPhase(1), TypeError,
     "True or False"),
    (lambda: poptorch.ShardedExecution("A").stage("B"), poptorch.Error,
     'block "B" is in no stage of the strategy: its stages hold A'),
    (lambda: poptorch.ShardedExecution().stage("B"), poptorch.Error, "makes its stages itself"),
    (lambda: poptorch.Options().setExecutionStrategy("sharded"), TypeError,
     "setExecutionStrategy.*PipelinedExecution"),
    (lambda: poptorch.Block(ipu_id=-2), ValueError, r"\[Block ipu_id\] .* at least 0, got -2"),
    (lambda: poptorch.Block(user_id=2.5), TypeError, "a block is named by a str"),
    (lambda: poptorch.Block.start(ipu_id=True), TypeError, "got bool True"),
    (lambda: poptorch.BlockFunction(ipu_id="1"), TypeError, "BlockFunction"),
    (lambda: poptorch.BeginBlock(nn.ReLU(), ipu_id=-1), ValueError, "BeginBlock.*got -1"),
    (lambda: poptorch.BeginBlock(3), TypeError, "a module or a function, got int 3"),
    (lambda: poptorch.NameScope(3), TypeError, "NameScope.*got int 3"),
    (lambda: poptorch.NameScope(""), ValueError, "NameScope name.* not empty, got ''"),
    (lambda: poptorch.module_repr("x"), TypeError, "expected a torch.nn.Module, got str"),
])
def test_arguments(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_stages_can_be_asked_for():
    strategy = poptorch.PipelinedExecution("A", Stage("B", 3))
    assert strategy.stage("3").blocks == ["B", "3"] and strategy.stage(3).ipu(2)._ipu == 2
    phased = poptorch.SerialPhasedExecution([[Stage("A"), Stage("B")], ["C", "D"]])
    assert phased.stage("D").blocks == ["C", "D"]
    assert [stage.blocks for stage in phased.phase(0).stages] == [["A"], ["B"]]
    as_varargs = poptorch.SerialPhasedExecution([Stage("A"), Stage("B")], ["C", "D"])
    assert as_varargs == phased and as_varargs != poptorch.SerialPhasedExecution("A")
    assert [stage._ipu for stage in phased.phase(0).ipus(3, 1).stages] == [3, 1]


def test_strategies_that_differ_print_differently():
    phased = [poptorch.SerialPhasedExecution("A").setTensorsLiveness(liveness)
              for liveness in poptorch.Liveness]
    assert len(set(map(repr, phased))) == 4
    assert repr(phased[0]) == "SerialPhasedExecution(Phase(Stage('A')))"


@pytest.mark.parametrize("strategy", ALL)
def test_options_hold_strategies(strategy):
    mine = strategy("A", "B")
    options = poptorch.Options().setExecutionStrategy(mine)
    assert options._execution_strategy is mine
    assert isinstance(mine, poptorch.options._IExecutionStrategy)
    same = options.clone()
    assert same == options and same._execution_strategy is not mine
    same._execution_strategy.stage("A").ipu(5)
    assert same != options and copy.deepcopy(mine) == mine and repr(mine) in repr(options)


def test_the_default_is_pipelined():
    assert poptorch.Options()._execution_strategy == poptorch.PipelinedExecution()


# -- models ------------------------------------------------------------------------------------


class Model(nn.Module):
    """``steps``: what to do to x, ``(block arguments or None, ...)`` each with a layer."""

    def __init__(self, *steps, loss=False):
        super().__init__()
        self.steps = steps
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in steps)
        self.loss = loss

    def forward(self, x):
        for layer, step in zip(self.layers, self.steps):
            if step is None:
                x = layer(x)
            else:
                with poptorch.Block(*step):  # the block
                    x = layer(x)
        return poptorch.identity_loss(x, "mean") if self.loss else x


def compile_model(*steps, strategy=None, iterations=1, accumulation=0):
    options = poptorch.Options().showCompilationProgressBar(False).deviceIterations(iterations)
    if strategy is not None:
        options.setExecutionStrategy(strategy)
    module = Model(*steps, loss=accumulation > 0)
    if accumulation:
        options.Training.gradientAccumulation(accumulation)
        model = poptorch.trainingModel(module, options)
    else:
        model = poptorch.inferenceModel(module, options)
    model.compile(torch.ones(iterations * max(accumulation, 1), 2))
    return model


LINE = (ROOT / "tests/api/test_strategies.py").read_text().split("# the block")[0].count("\n") + 1
HERE = rf"\n  at .*test_strategies.py:{LINE}"
FOUR = [("A", 0), ("B", 1), ("C", 2), ("D", 3)]


@pytest.mark.parametrize(("steps", "strategy", "words"), [
    ([("A",), ("X",)], poptorch.ShardedExecution("A", "B"),
     'block "X" is in no stage of the strategy: its stages hold A, B.' + ".*" + HERE),
    ([("X",)], poptorch.SerialPhasedExecution("A"), 'block "X" is in no stage' + ".*" + HERE),
    ([("A", 0), ("A", 1)], poptorch.ShardedExecution(),
     'block "A" was begun on IPU 0 and now on IPU 1' + ".*" + HERE),
    ([("A", 3)], poptorch.ShardedExecution(Stage("A").ipu(1)),
     'block "A" specifies IPU 3, but its stage .* runs on IPU 1' + ".*" + HERE),
    ([("A",), ("B",)], poptorch.SerialPhasedExecution([Stage("A").ipu(0), Stage("B").ipu(0)]),
     "phase 0 has two stages on IPU 0"),
    ([("A",), ("B",)], poptorch.ParallelPhasedExecution([Stage("A").ipu(0)], [Stage("B").ipu(2)]),
     "phase 1 has .* on IPU 2: odd phases run on odd IPUs"),
    ([None, ("A", 0)], poptorch.ShardedExecution(AutoStage.AutoIncrement), "No active Block"),
    ([("A", 0), None], poptorch.ShardedExecution(AutoStage.AutoIncrement),
     'No active Block: .* as block "A" ends with its `with` statement.*module "layers.1"'),
])
def test_broken_rules(steps, strategy, words):
    with pytest.raises(poptorch.Error, match=f"(?s){words}"):
        compile_model(*steps, strategy=strategy)


def test_limits_of_pipelines():
    with pytest.raises(poptorch.Error, match=r"(?s)poptorch.Options\(\).deviceIterations must be "
                       r"greater than or equal to the number of pipeline stages \(4\) when using "
                       r"poptorch.PipelinedExecution, got 3\. .*"
                       r'block "D".' + HERE):
        compile_model(*FOUR, iterations=3)
    compile_model(*FOUR, iterations=4)
    for accumulation in (4, 6):
        with pytest.raises(poptorch.Error, match=r"(?s)Training.gradientAccumulation must be "
                           r"greater than or equal to the number of pipeline stages \(7\) when "
                           rf"using poptorch.PipelinedExecution, got {accumulation} \(4 stages,"):
            compile_model(*FOUR, accumulation=accumulation)
    compile_model(*FOUR, accumulation=7)
    compile_model(*FOUR, strategy=poptorch.ShardedExecution())
    compile_model(*FOUR, strategy=poptorch.ShardedExecution(), accumulation=1)
    compile_model(("A", 0), ("B", 0))  # one stage is no pipeline


def test_stages_of_a_model_without_blocks(caplog):
    with caplog.at_level(logging.WARNING, poptorch.logger.name):
        opts = quiet_options().setExecutionStrategy(poptorch.ShardedExecution("A", "B"))
        poptorch.inferenceModel(nn.Linear(2, 2), opts).compile(torch.ones(4, 2))
    assert ('[ShardedExecution] the model has no blocks, but the stages of the strategy name "A", '
            '"B": the whole model runs on one IPU.' in caplog.text)


def test_stages_that_do_not_overlap_are_told_of_once(caplog):
    partition._note_sequence.cache_clear()
    with caplog.at_level(logging.INFO, poptorch.logger.name):
        compile_model(*FOUR, strategy=poptorch.ShardedExecution())
        assert "one after another" not in caplog.text
        for _ in range(2):
            compile_model(*FOUR, iterations=4)
    assert caplog.text.count("[PipelinedExecution] the host computes the 4 stages one after "
                             "another. timeline() shows when IPUs would run them.") == 1


def test_stages_that_form_no_pipeline_are_told_of_once(caplog):
    partition._warn_once.cache_clear()

    def warnings():
        return caplog.text.count('block "C" goes back from stage 1 to stage 0, so the stages form '
                                 "no pipeline and run one after another. Use PipelinedExecution("
                                 "AutoStage.AutoIncrement)")

    back = ("A", 0), ("B", 1), ("C", 0)
    with caplog.at_level(logging.WARNING, poptorch.logger.name):
        compile_model(*back, strategy=poptorch.ShardedExecution())
        compile_model(*back, strategy=poptorch.PipelinedExecution(AutoStage.AutoIncrement),
                      iterations=4)
        compile_model(*FOUR, iterations=4)
        assert not warnings()
        for _ in range(2):
            compile_model(*back, iterations=4)
    assert warnings() == 1 and "at " in caplog.text and "test_strategies.py" in caplog.text


def test_the_number_of_ipus_names_the_place():
    with pytest.raises(poptorch.Error, match=r"(?s)power of two: the model uses 3 .*"
                       r'test_strategies.py.*module "layers.2"'):
        compile_model(*FOUR[:3], strategy=poptorch.ShardedExecution())


def table(model):
    """Rows of shares: (stage, ipu, blocks)."""
    return [(row["stage"], row["ipu"], row["blocks"]) for row in model._executable.shares()]


def test_what_precedes_the_first_block():
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(2, 2) for _ in range(3))
            poptorch.BeginBlock(self.b, ipu_id=1)

        def forward(self, x):
            return self.c(self.b(self.a(x)))

    for stages in AutoStage:
        options = poptorch.Options().showCompilationProgressBar(False)
        options.setExecutionStrategy(poptorch.ShardedExecution(stages))
        model = poptorch.inferenceModel(Late(), options)
        model.compile(torch.ones(1, 2))
        shares = model._executable.shares()
        assert [(s["ipu"], s["stage"], s["modules"], s["blocks"]) for s in shares] == [
            (0, 0, ["a"], []), (1, 1, ["b", "c"], ["0"])]


def test_what_precedes_the_first_block_is_a_stage_of_the_pipeline():
    def model(iterations):
        layers = nn.Sequential(*(nn.Linear(2, 2) for _ in range(3)))
        for ipu in (1, 2):
            poptorch.BeginBlock(layers[ipu], ipu_id=ipu)
        options = quiet_options(deviceIterations=iterations, autoRoundNumIPUs=True)
        return poptorch.inferenceModel(layers, options)

    with pytest.raises(poptorch.Error, match=r"number of pipeline stages \(3\) .* got 2"):
        model(2).compile(torch.ones(2, 2))
    model(3).compile(torch.ones(3, 2))


# Of blocks with these ipu_id: the stages with their IPUs and blocks.
WITHOUT_IPU = [
    (AutoStage.SameAsIpu, (None, None, None), [(0, 0, "ABC")]),
    (AutoStage.SameAsIpu, (1, None, 0), [(0, 0, "C"), (1, 1, "AB")]),
    (AutoStage.AutoIncrement, (None, None, None, None),
     [(0, 0, "A"), (1, 1, "B"), (2, 2, "C"), (3, 3, "D")]),
    (AutoStage.AutoIncrement, (2, None, 0, None),
     [(0, 2, "A"), (1, 3, "B"), (2, 0, "C"), (3, 1, "D")]),
]


@pytest.mark.parametrize(("stages", "ipus", "rows"), WITHOUT_IPU)
def test_blocks_without_an_ipu(stages, ipus, rows):
    model = compile_model(*zip("ABCD", ipus), strategy=poptorch.ShardedExecution(stages))
    assert [(stage, ipu, "".join(blocks)) for stage, ipu, blocks in table(model)] == rows


@pytest.mark.parametrize("stages", AutoStage)
def test_begun_blocks_without_an_ipu_compute_what_the_module_does(stages):
    net, x = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4))), torch.ones(4, 2)
    expected = net(x)
    for layer in net:
        poptorch.BeginBlock(layer)
    options = quiet_options(deviceIterations=4).setExecutionStrategy(
        poptorch.PipelinedExecution(stages))
    torch.testing.assert_close(poptorch.inferenceModel(net, options)(x), expected)


def test_blocks_side_by_side_on_one_ipu_are_one_stage():
    strategy = poptorch.ShardedExecution(AutoStage.AutoIncrement)
    model = compile_model(("A", 0), ("B", 0), ("C", 1), ("D", 0), strategy=strategy)
    assert table(model) == [(0, 0, ["A", "B"]), (1, 1, ["C"]), (2, 0, ["D"])]


def test_summary(capsys):
    model = compile_model(("A",), ("<B>",), strategy=poptorch.SerialPhasedExecution("A", "<B>"))
    table = model.partition_summary()
    assert not capsys.readouterr().out
    print(table)
    cycles = [f"{row['cycles']:,.0f}" for row in table.rows]
    assert cycles[0] == cycles[1] and len(cycles[0]) == 5
    assert capsys.readouterr().out.splitlines() == [
        "phase  stage  IPU  blocks  modules   parameters  bytes  share  FLOPs  cycles",
        f"    0      0    0  A       layers.0           6     24  50.0%      8   {cycles[0]}",
        f"    1      0    0  <B>     layers.1           6     24  50.0%      8   {cycles[1]}"]
    assert repr(table) == str(table) and [row["blocks"] for row in table.rows] == [["A"], ["<B>"]]
    assert table._repr_html_().startswith("<table><tr><th>phase</th><th>stage</th>")
    assert table._repr_html_().count("<tr>") == 3 and "<td>&lt;B&gt;</td>" in table._repr_html_()
    with pytest.raises(poptorch.Error, match="not been compiled"):
        poptorch.inferenceModel(nn.ReLU()).partition_summary()


def test_name_scopes_are_prefixes():
    class Scoped(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            with poptorch.NameScope("outer"), poptorch.NameScope("inner"):
                x = self.fc(x).relu()
            return self.fc(x)

    options = poptorch.Options().showCompilationProgressBar(False)
    model = poptorch.inferenceModel(Scoped(), options)
    model.compile(torch.ones(1, 2))
    lines = [line for line in model.ir("translate").splitlines() if " addmm " in line]
    assert lines[0].endswith(" outer/inner/fc") and lines[1].endswith(" fc")
    assert {"outer/inner/fc/addmm", "outer/inner/relu", "fc/addmm"} <= set(model.getTensorNames())
    assert Scoped()(torch.ones(1, 2)).shape == (1, 2)


def test_recomputed_blocks_are_those_of_the_forward_pass():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(
                poptorch.BeginBlock(nn.Linear(2, 2), ipu_id=i) for i in range(2))

        def part(self, x):
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return x

        def forward(self, x):
            x = torch.utils.checkpoint.checkpoint(self.part, x, use_reentrant=False)
            return poptorch.identity_loss(x, "sum")

    options = poptorch.Options().showCompilationProgressBar(False)
    options.setExecutionStrategy(poptorch.ShardedExecution())
    model = poptorch.trainingModel(Checkpointed(), options)
    model.compile(torch.ones(1, 2))
    again = [line for line in model.ir("place").splitlines() if "recompute" in line]
    for ipu in (0, 1):
        assert [line for line in again if "tanh" in line and f"ipu={ipu}," in line], again
    assert table(model) == [(0, 0, ["0"]), (1, 1, ["1"])]


def test_module_repr():
    plain = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Tanh()))
    assert poptorch.module_repr(plain) == repr(plain)
    before = repr(plain)
    poptorch.BeginBlock(plain[1][0], ipu_id=1)
    poptorch.BeginBlock(plain[1], "tail")
    assert repr(plain) == before
    assert poptorch.module_repr(plain).splitlines() == [
        "Sequential(",
        "  (0): Linear(in_features=2, out_features=3, bias=True)",
        "  (1): BeginBlock(user_id='tail', ipu_id=None) Sequential(",
        "    (0): BeginBlock(user_id=None, ipu_id=1) ReLU()",
        "    (1): Tanh()",
        "  )",
        ")"]
