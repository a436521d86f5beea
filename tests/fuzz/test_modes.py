"""Output modes with every cut of a batch: iterations, replicas, input groups, accumulation."""

import collections
import dataclasses

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

import poptorch
from tests.fuzz.judge import attempt, budget
from tests.helpers import quiet_options

MODES = poptorch.OutputMode
GROUPS = poptorch.CommGroupType
COLUMNS = 2
RATE = 0.25
Pair = collections.namedtuple("Pair", ["first", "second"])

# What a step gives back. The numbers are small and whole: every sum is exact.
RESULTS = {
    "input": lambda x: x, "rows": lambda x: x * 2, "column": lambda x: x[:, 0],
    "number": lambda x: x.sum(), "vector": lambda x: x.sum(0), "one": lambda x: x.sum().reshape(1),
    "flags": lambda x: x > 1, "whole": lambda x: (x > 1).to(torch.int32),
    "half": lambda x: x.half(), "count": lambda x: (x > 1).sum(dtype=torch.int32),
    "cube": lambda x: x[:, :, None] * torch.ones(3), "nothing": lambda x: None,
}


@dataclasses.dataclass
class Cut:
    """How a call is cut into steps, and which results it keeps."""

    training: bool
    iterations: int
    replicas: int
    accumulation: int
    group_size: int
    group_kind: GROUPS
    mode: MODES
    period: int
    is_sum: bool

    @property
    def groups(self):
        return self.replicas // self.group_size

    @property
    def micro_batches(self):
        return self.iterations * self.groups * self.accumulation

    def options(self):
        options = quiet_options(
            deviceIterations=self.iterations, replicationFactor=self.replicas,
            inputReplicaGrouping=(self.group_size, self.group_kind), broadcastBuffers=False,
            outputMode=(self.mode, self.period), Training__gradientAccumulation=self.accumulation)
        kind = poptorch.ReductionType.Sum if self.is_sum else poptorch.ReductionType.Mean
        options.Training.accumulationAndReplicationReductionType(kind)
        return options

    def steps(self, batch):
        """The inputs of the steps: [iteration][replica][micro-batch]."""
        parts = batch.unflatten(0, (self.iterations, self.groups, self.accumulation, -1))
        is_neighbor = self.group_kind is not GROUPS.Orthogonal
        return parts[:, [r // self.group_size if is_neighbor else r % self.groups
                         for r in range(self.replicas)]]

    def kept(self, results):
        """What the call returns of the results [iteration][replica][micro-batch] of its steps."""
        mode = self.mode
        if mode is MODES.Default:
            mode = MODES.Final if self.training else MODES.All
        if mode is MODES.Final:
            results = [[[replica[-1]] for replica in results[-1]]]
        elif mode is MODES.Sum:
            of_replica = [[step for part in parts for step in part] for parts in zip(*results)]
            results = [[[_sum(steps)] for steps in of_replica]]
        elif mode is MODES.EveryN:
            results = results[self.period - 1::self.period]
        flat = [step for iteration in results for replica in iteration for step in replica]
        if flat[0].dim():
            return torch.cat(flat)
        return torch.stack(flat) if len(flat) > 1 else flat[0]


def _sum(steps):
    return torch.stack(steps).sum(0, dtype=steps[0].dtype)


@st.composite
def cuts(draw):
    training = draw(st.booleans())
    replicas = draw(st.sampled_from([1, 1, 2, 4]))
    iterations = draw(st.sampled_from([1, 2, 3, 4]))
    mode = draw(st.sampled_from(list(MODES)))
    periods = [n for n in range(1, iterations + 1) if iterations % n == 0]
    return Cut(training, iterations, replicas,
               draw(st.sampled_from([1, 2, 3])) if training else 1,
               draw(st.sampled_from([n for n in (1, 2, 4) if replicas % n == 0])),
               draw(st.sampled_from([GROUPS.Consecutive, GROUPS.Orthogonal])), mode,
               draw(st.sampled_from(periods)) if mode is MODES.EveryN else 1, draw(st.booleans()))


structures = st.recursive(st.sampled_from(sorted(RESULTS)), lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from(["b", "a", "", "loss"]), inner, max_size=3),
    st.builds(Pair, inner, inner)), max_leaves=5)


class Steps(torch.nn.Module):
    """Returns the chosen values, counts its steps, and has a loss with a gradient of rows."""

    def __init__(self, structure):
        super().__init__()
        self.structure = structure
        self.weight = torch.nn.Parameter(torch.ones(COLUMNS))
        self.register_buffer("count", torch.zeros(()))

    def results(self, x):
        return pytree.tree_map(lambda name: RESULTS[name](x), self.structure)

    def forward(self, x):
        self.count.add_(1)
        loss = poptorch.identity_loss((x * self.weight).sum(), reduction="none")
        return self.results(x), loss, self.count * 1


def wrap(net, cut):
    """Its wrapper."""
    if cut.training:
        return poptorch.trainingModel(net, cut.options(),
                                      torch.optim.SGD(net.parameters(), lr=RATE))
    return poptorch.inferenceModel(net, cut.options())


@budget(60)
@given(cuts(), structures, st.integers(1, 3), st.sampled_from([0] * 9 + [1]), st.integers(0, 2**20))
def test_every_cut(cut, structure, rows, surplus, seed):
    net = Steps(structure)
    model = wrap(net, cut)
    draw = torch.Generator().manual_seed(seed)
    weight, steps_before = torch.ones(COLUMNS), 0
    for _ in range(2):
        batch = torch.randint(-3, 4, (rows * cut.micro_batches + surplus, COLUMNS), generator=draw)
        batch = batch.float()
        result, error = attempt(model, batch)
        if len(batch) % cut.micro_batches:
            assert isinstance(error, poptorch.Error) and str(cut.micro_batches) in str(error)
            return
        assert error is None, error
        inputs = cut.steps(batch)
        each, losses, counts = [], [], []
        for iteration in inputs:
            each.append([[net.results(x) for x in replica] for replica in iteration])
            losses.append([[(x * weight).sum() for x in replica] for replica in iteration])
            counts.append([[torch.tensor(float(steps_before + n)) for n in
                            range(1, cut.accumulation + 1)] for _ in iteration])
            steps_before += cut.accumulation
            if cut.training:
                total = iteration.sum((0, 1, 2))
                divisor = 1 if cut.is_sum else cut.accumulation * cut.replicas
                weight = weight - RATE * total / divisor
        check(result[0], [leaf_steps(each, n) for n in range(len(pytree.tree_leaves(structure)))],
              structure, cut)
        assert torch.allclose(torch.Tensor.detach(result[1]), cut.kept(losses), atol=1e-3)
        assert torch.equal(torch.Tensor.detach(result[2]), cut.kept(counts))
    if cut.training:
        assert torch.allclose(net.weight.detach(), weight, rtol=1e-5, atol=1e-5)


def leaf_steps(each, number):
    """One result of every step, of the nested results of the steps."""
    def leaf(tree):
        leaves = pytree.tree_leaves(tree, is_leaf=lambda value: value is None)
        return leaves[number]

    return [[[leaf(step) for step in replica] for replica in iteration] for iteration in each]


def check(result, leaves, structure, cut):
    """The result has the structure, and holds what the mode keeps of the leaves of the steps."""
    found, spec = pytree.tree_flatten(result, is_leaf=lambda value: value is None)
    assert str(spec) == str(pytree.tree_structure(structure))
    for ours, steps in zip(found, leaves, strict=True):
        if steps[0][0][0] is None:
            assert ours is None
            continue
        expected = cut.kept(steps)
        ours = torch.Tensor.detach(ours)
        assert ours.dtype is expected.dtype and ours.shape == expected.shape
        assert torch.equal(ours, expected)
