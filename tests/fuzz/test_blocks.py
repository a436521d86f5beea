"""Nested blocks under any strategy: the bits of the plain model, or the rule that is broken.

Which of the two is decided here a second time for staged strategies, by the rules of their
documentation; what phased ones refuse must name a block, a phase or an IPU.
"""

import contextlib
import copy
import dataclasses
import re

import torch
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from tests.fuzz.judge import attempt, budget
from tests.helpers import check_equal_bits, quiet_options

COLUMNS = 3
NAMES = ["A", "B", "C", "D"]
LAYERS = {"linear": lambda: torch.nn.Linear(COLUMNS, COLUMNS), "tanh": torch.nn.Tanh,
          "norm": lambda: torch.nn.LayerNorm(COLUMNS)}
RULES = re.compile(r"\bblock|\bstage|\bphase|\bIPU|gradientAccumulation|deviceIterations",
                   re.IGNORECASE)


@dataclasses.dataclass
class Node:
    """A layer, or a row of nodes; with a block or none.

    Attributes:
        content: the name of a layer, or nodes.
        form: how the block begins: ``BeginBlock``, ``Block`` or ``start``; None: no block.
        name: of the block.
        ipu: of the block; None: left open.
    """

    content: object
    form: str | None
    name: str
    ipu: int | None


class Run(torch.nn.Module):
    """Runs a node; ``is_plain``: as if it had no blocks."""

    def __init__(self, node, is_plain):
        super().__init__()
        self.node, self.is_plain = node, is_plain
        if isinstance(node.content, str):
            self.inner = LAYERS[node.content]()
        else:
            self.inner = torch.nn.Sequential(*(Run(part, is_plain) for part in node.content))

    def forward(self, x):
        node, scope = self.node, contextlib.nullcontext()
        if node.form and not self.is_plain:
            if node.form == "Block":
                scope = poptorch.Block(node.name, node.ipu)
            elif node.form == "start":
                poptorch.Block.start(node.name, node.ipu)
        with scope:
            return self.inner(x)


class Net(torch.nn.Module):
    """The tree of nodes, and a loss in the block of the last layer."""

    def __init__(self, tree, is_plain):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = Run(tree, is_plain)
            self.weight = torch.nn.Parameter(torch.ones(COLUMNS))

    def forward(self, x):
        y = self.body(x * self.weight)
        return y, poptorch.identity_loss((y * y).sum(), reduction="none")


def made(tree, is_plain):
    """The net, with the blocks of its modules begun."""
    net = Net(tree, is_plain)
    for module in list(net.modules()):
        if not is_plain and isinstance(module, Run) and module.node.form == "BeginBlock":
            poptorch.BeginBlock(module, module.node.name, module.node.ipu)
    return net


# -- what is drawn -------------------------------------------------------------------------------

ipus = st.sampled_from([None, 0, 0, 1, 1, 2, 3])
forms = st.sampled_from([None, "BeginBlock", "BeginBlock", "Block", "start"])


def nodes(content):
    return st.builds(Node, content, forms, st.sampled_from(NAMES), ipus)


def agreed(tree, places):
    """The tree, in which blocks of one name ask for one IPU, that in ``places``."""
    if not isinstance(tree.content, str):
        tree.content = [agreed(part, places) for part in tree.content]
    if places is not None:
        tree.ipu = places[tree.name]
    return tree


@st.composite
def trees(draw):
    tree = draw(st.recursive(nodes(st.sampled_from(sorted(LAYERS))), lambda inner: nodes(
        st.lists(inner, min_size=2, max_size=4)), max_leaves=8))
    kind = draw(st.sampled_from(["each", "agreed", "agreed", "open"]))
    places = {name: draw(st.integers(0, 3)) if kind == "agreed" else None for name in NAMES}
    return agreed(copy.deepcopy(tree), None if kind == "each" else places)


@st.composite
def stages(draw, names):
    """The names in stages, some of them with an IPU; now and then a name is left out."""
    names, found = list(draw(st.permutations(names))), []
    if draw(st.integers(0, 7)) == 0:
        del names[-1]
    while names:
        count = draw(st.integers(1, len(names)))
        stage = poptorch.Stage(*names[:count])
        if draw(st.integers(0, 4)) == 0:
            stage.ipu(draw(st.integers(0, 3)))
        found.append(stage)
        del names[:count]
    return found


@st.composite
def strategies(draw):
    kind = draw(st.sampled_from([
        poptorch.ShardedExecution, poptorch.PipelinedExecution,
        poptorch.SerialPhasedExecution, poptorch.ParallelPhasedExecution]))
    if kind in (poptorch.ShardedExecution, poptorch.PipelinedExecution):
        if draw(st.booleans()):
            return kind(draw(st.sampled_from(list(poptorch.AutoStage))))
        return kind(*draw(stages(NAMES)))
    parts = draw(stages(NAMES))
    cut = draw(st.integers(1, len(parts)))
    strategy = kind(*[poptorch.Phase(*part) for part in (parts[:cut], parts[cut:]) if part])
    strategy.useSeparateBackwardPhase(draw(st.booleans()))
    if kind is poptorch.SerialPhasedExecution:
        strategy.setTensorsLiveness(draw(st.sampled_from(list(poptorch.Liveness))))
    return strategy


# -- what the rules say --------------------------------------------------------------------------

def begun(node):
    """The nodes that begin a block, in the order of the program."""
    found = [node] if node.form else []
    parts = [] if isinstance(node.content, str) else node.content
    return found + [inner for part in parts for inner in begun(part)]


def is_refused(tree, strategy, training, accumulation, iterations):
    """Whether a staged strategy cannot run the tree; None: not decided here."""
    uses = begun(tree)
    if not uses:
        return False
    asked = {}
    for use in uses:
        if use.ipu is not None and asked.setdefault(use.name, use.ipu) != use.ipu:
            return True
    listed = strategy._stages
    if not listed:
        is_counted = strategy._auto_stage is poptorch.AutoStage.AutoIncrement
        if is_counted or any(use.name not in asked for use in uses):
            return None  # its place follows from the block before it
        count = len({0, *asked.values()})  # what is before the first block is in stage 0
    else:
        where = {name: number for number, stage in enumerate(listed) for name in stage.blocks}
        if any(use.name not in where for use in uses):
            return True
        for stage in listed:
            wanted = {asked[name] for name in stage.blocks if name in asked} | (
                set() if stage._ipu is None else {stage._ipu})
            if len(wanted) > 1:
                return True
        count = len({0, *(where[use.name] for use in uses)})
    if not isinstance(strategy, poptorch.PipelinedExecution) or count == 1:
        return False
    return accumulation < 2 * count - 1 if training else iterations < count


def run(net, x, training, options):
    """Result and state of two calls, or the error of the first: ``(values, error)``."""
    if training:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.125, momentum=0.5)
        model = poptorch.trainingModel(net, options, optimizer)
    else:
        model = poptorch.inferenceModel(net.eval(), options)
    first, error = attempt(model, x)
    if error is not None:
        assert not model.isCompiled()
        return None, error
    values = first, model(x)
    model.copyWeightsToHost()
    return (values, {name: p.detach().clone() for name, p in net.named_parameters()}), None


@budget(50)
@given(trees(), strategies(), st.booleans(), st.sampled_from([1, 1, 3, 7]),
       st.sampled_from([1, 1, 2, 4]), st.integers(0, 2**20))
def test_the_bits_of_the_plain_model(tree, strategy, training, accumulation, iterations, seed):
    accumulation = accumulation if training else 1
    settings = {"deviceIterations": iterations, "autoRoundNumIPUs": True,
                "Training__gradientAccumulation": accumulation}
    x = torch.randn(2 * accumulation * iterations, COLUMNS,
                    generator=torch.Generator().manual_seed(seed))
    options = quiet_options(setExecutionStrategy=strategy, **settings)
    found, error = run(made(tree, False), x, training, options)
    staged = isinstance(strategy, poptorch.ShardedExecution | poptorch.PipelinedExecution)
    if staged:
        expected = is_refused(tree, strategy, training, accumulation, iterations)
        assert expected in (None, error is not None), error
    if error is not None:
        assert isinstance(error, poptorch.Error) and RULES.search(str(error)), error
        return
    plain, error = run(made(tree, True), x, training, quiet_options(**settings))
    assert error is None
    check_equal_bits(found, plain)
