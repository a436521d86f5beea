"""Each op of a random model with blocks is on the IPU, in the stage and phase that it must be."""

import collections
import contextlib
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from tests.fuzz.judge import budget
from tests.fuzz.place_rules import Spec, default_ipu, spots
from tests.helpers import check_equal_bits, quiet_options

COLUMNS = 3
NAMES = ["A", "B", "C", "D", "E"]
LAYERS = {"linear": lambda: torch.nn.Linear(COLUMNS, COLUMNS), "tanh": torch.nn.Tanh,
          "norm": lambda: torch.nn.LayerNorm(COLUMNS)}
# What brings a value elsewhere is where it is read; what the host or a loop gives is nobody's.
MOVES = {"ipu_copy", "remote_load", "remote_store", "constant", "full", "stream_in", "loop",
         "input", "strategy"}
LINE = re.compile(r"^  (?:%.* = )?(?P<op>\w+)(?: |$).*?(?:  // \S+:\d+(?: (?P<module>\S+))?)?$")


class Net(torch.nn.Module):
    """Layers, each in its block, and a loss in the block of the last one.

    ``form``: how blocks begin; None: there are no blocks.
    """

    def __init__(self, layers, blocks, asked, form):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            first, *others = (LAYERS[layer]() for layer in layers)
            # With weights, so that something is computed backward in all layers.
            first = torch.nn.Sequential(LAYERS["linear"](), first)
            self.layers = torch.nn.ModuleList([first, *others])
        self.blocks, self.asked, self.form = blocks, asked, form
        for layer, block in zip(self.layers, blocks):
            if block is not None and form == "BeginBlock":
                poptorch.BeginBlock(layer, block, asked[block])

    def forward(self, x):
        for layer, block in zip(self.layers, self.blocks):
            scope = contextlib.nullcontext()
            if block is not None and self.form == "start":
                poptorch.Block.start(block, self.asked[block])
            elif block is not None and self.form == "Block":
                scope = poptorch.Block(block, self.asked[block])
            with scope:
                x = layer(x)
                if self.training and layer is self.layers[-1]:
                    return x, poptorch.identity_loss((x * x).sum(), reduction="none")
        return x


# -- what is drawn -------------------------------------------------------------------------------

def groups(draw, items, most):
    """The items in order, cut into lists of at least one."""
    found, items = [], list(items)
    while items:
        count = draw(st.integers(1, most if len(items) > most else len(items)))
        found.append(items[:count])
        del items[:count]
    return found


@st.composite
def specs(draw, names):
    kind = draw(st.sampled_from(["sharded", "pipelined", "serial", "serial", "parallel"]))
    if kind in ("sharded", "pipelined") and draw(st.booleans()):
        return Spec(kind, [], [], auto=draw(st.sampled_from(list(poptorch.AutoStage))))
    stages = groups(draw, draw(st.permutations(names)), 2)
    parts = groups(draw, stages, 2) if kind in ("serial", "parallel") else [stages]
    spec = Spec(kind, parts, [], separate=draw(st.booleans()))
    if kind == "serial":
        spec.liveness = draw(st.sampled_from(list(poptorch.Liveness)))
    for phase, stages in enumerate(parts):
        # Stages of a phase run at the same time, phases of two groups on even and odd IPUs.
        ipus = [default_ipu(spec, phase, stage) for stage in range(len(stages))]
        if draw(st.booleans()):
            spec.ipus.append([None] * len(stages))
        else:
            spec.ipus.append(draw(st.permutations(ipus)))
    return spec


@st.composite
def programs(draw):
    names = NAMES[:draw(st.integers(1, 5))]
    spec = draw(specs(names))
    form = draw(st.sampled_from(["BeginBlock", "Block", "start"]))
    asked = dict.fromkeys(names)
    for phase, stages in enumerate(spec.parts):
        for stage, blocks in enumerate(stages):
            ipu = spec.ipus[phase][stage]
            if ipu is not None and draw(st.booleans()):
                spec.ipus[phase][stage] = None
                asked.update(dict.fromkeys(blocks, ipu))
    if spec.auto:
        asked = {name: draw(st.integers(0, 3)) for name in names}
    blocks = list(draw(st.permutations(names)))
    if spec.is_phased:  # what is in a phase does not wait for a later one
        phases = {name: number for number, phase in enumerate(spec.parts)
                  for stage in phase for name in stage}
        blocks.sort(key=phases.get)
    elif spec.auto is not poptorch.AutoStage.AutoIncrement:  # which stage a return is in is open
        blocks += draw(st.lists(st.sampled_from(names), max_size=2))
    # After the end of a `with` there is no block, for which AutoIncrement has no stage.
    is_refused = form == "Block" and spec.auto is poptorch.AutoStage.AutoIncrement
    for _ in range(0 if is_refused else draw(st.integers(0, 2))):
        blocks.insert(draw(st.integers(0, len(blocks))), None)
    layers = [draw(st.sampled_from(sorted(LAYERS))) for _ in blocks]
    return spec, form, asked, blocks, layers


def strategy_of(spec):
    stages = [[poptorch.Stage(*blocks) for blocks in phase] for phase in spec.parts]
    for phase, row in zip(stages, spec.ipus):
        for stage, ipu in zip(phase, row):
            if ipu is not None:
                stage.ipu(ipu)
    if not spec.is_phased:
        kind = poptorch.ShardedExecution if spec.kind == "sharded" else poptorch.PipelinedExecution
        return kind(spec.auto) if spec.auto else kind(*stages[0])
    kind = poptorch.ParallelPhasedExecution
    if spec.kind == "serial":
        kind = poptorch.SerialPhasedExecution
    strategy = kind([poptorch.Phase(*phase) for phase in stages])
    strategy.useSeparateBackwardPhase(spec.separate)
    return strategy if spec.kind == "parallel" else strategy.setTensorsLiveness(spec.liveness)


# -- what is compared ----------------------------------------------------------------------------

def check_places(text, layers, expected, training):
    """Every op that belongs to a layer is where the layer must be, and no layer has none."""
    seen, tanhs = set(), collections.Counter()
    for line in text.splitlines():
        parts = LINE.match(line)
        if parts is None or parts["op"] in MOVES:
            continue
        code = line.partition("  // ")[0]
        found = {name: int(number)
                 for name, number in re.findall(r"\b(ipu|stage|phase)=(\d+)", code)}
        is_backward = 'part="forward"' not in code
        # Fused ops have the module of one of their parts: they must not join two places.
        # A backward task that recomputes has forward ops again.
        if not re.search(r"\brecompute=", code):
            tanhs[*found.items(), is_backward] += len(re.findall(r"\btanh(?:_backward)?\b", code))
        path = re.search(r'path="(?:\S*\.)?layers\.(\d+)\.', code)
        layer = path or re.match(r"layers\.(\d+)\b", parts["module"] or "")
        if layer is None:
            continue
        wanted = place(expected[int(layer[1])], is_backward)
        assert found == wanted, f"expected {wanted}: {line}"
        seen.add((int(layer[1]), is_backward))
    passes = (False, True) if training else (False,)
    with_weights = [number for number, layer in enumerate(layers) if layer != "tanh"]
    assert seen >= {(number, way) for number in with_weights for way in passes}
    assert +tanhs == collections.Counter(
        (*place(spot, way).items(), way)
        for layer, spot in zip(layers, expected) if layer == "tanh" for way in passes)


def place(spot, is_backward):
    """The attributes that say it in the IR."""
    found = {"ipu": spot.ipu, "phase": spot.backward if is_backward else spot.forward,
             "stage": spot.stage}
    return found if spot.forward is not None else {"ipu": spot.ipu, "stage": spot.stage}


def compiled(net, training, options):
    if training:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.125, momentum=0.5)
        return poptorch.trainingModel(net, options, optimizer)
    return poptorch.inferenceModel(net.eval(), options)


@budget(8)
@given(programs(), st.booleans(), st.integers(0, 2**20))
def test_places(program, training, seed):
    check(program, training, seed)


@pytest.mark.parametrize("blocks", [[None, "B", "A"], ["B", None, "A"]], ids=str)
def test_gradients_of_what_runs_outside_of_blocks(blocks):
    """They run where that does, though they may read nothing but values of other blocks."""
    spec = Spec("sharded", [[["A"], ["B"]]], [[2, None]])
    form = "BeginBlock" if blocks[0] is None else "Block"
    check((spec, form, dict.fromkeys("AB"), blocks, ["linear"] * 3), True, 0)


def check(program, training, seed):
    """Compiles and runs a program, and compares its places and numbers."""
    spec, form, asked, blocks, layers = program
    settings = {"deviceIterations": 5, "autoRoundNumIPUs": True,
                "Training__gradientAccumulation": 9 if training else 1}
    x = torch.randn(5 * settings["Training__gradientAccumulation"], COLUMNS,
                    generator=torch.Generator().manual_seed(seed))
    options = quiet_options(setExecutionStrategy=strategy_of(spec), **settings)
    net = Net(layers, blocks, asked, form)
    model = compiled(net, training, options)
    result = model(x)
    check_places(model.ir("place"), layers, spots(spec, blocks, asked), training)
    plain = Net(layers, blocks, asked, None)
    reference = compiled(plain, training, quiet_options(**settings))
    check_equal_bits((result, dict(model.state_dict())),
                     (reference(x), dict(reference.state_dict())))
