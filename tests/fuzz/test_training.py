"""Training steps of random programs, on arguments of any structure, compared with PyTorch.

Where all numbers are small whole numbers, every sum is exact and results must be equal. Elsewhere
PyTorch's own error is the measure; it is that of several runs in float32 from weights that differ
by little, so that numbers which nearly cancel are judged by what they lose.
"""

import collections
import copy
import dataclasses

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

import poptorch
from benchmarks.networks import nudged
from tests.fuzz.judge import attempt, budget
from tests.helpers import flatten, quiet_options, relative_error

F = torch.nn.functional
COLUMNS = 4
WORDS = 5
NUDGE = 2.0**-21
Pair = collections.namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Record:
    x: object
    note: object = None


pytree.register_dataclass(Record)


def _in_place(net, x, other):
    x = x.clone()
    x[:, 1:3] += other[:, :2]
    return x


# Each takes the net, a value [rows, COLUMNS] and another, and gives a value like it.
WHOLE = {
    "first": lambda net, x, other: net.first(x), "second": lambda net, x, other: net.second(x),
    "scale": lambda net, x, other: x * net.scale, "relu": lambda net, x, other: x.relu(),
    "abs": lambda net, x, other: x.abs(), "clamp": lambda net, x, other: x.clamp(-2, 3),
    "flip": lambda net, x, other: x.flip(1), "roll": lambda net, x, other: x.roll(1, 0),
    "cumsum": lambda net, x, other: x.cumsum(1),
    "column sums": lambda net, x, other: x + x.sum(0, keepdim=True),
    "moved": lambda net, x, other: torch.cat([x[:, 1:], x[:, :1]], 1),
    "where": lambda net, x, other: torch.where(x > 0, other, -x),
    "filled": lambda net, x, other: x.masked_fill(other > 0, 2.0),
    "picked": lambda net, x, other: x[:, [3, 0, 0, 1]],
    "largest": lambda net, x, other: torch.maximum(x, other),
    "sum": lambda net, x, other: x + other, "difference": lambda net, x, other: other - x,
    "product": lambda net, x, other: x * other, "in place": _in_place,
    "stacked": lambda net, x, other: torch.stack([x, other], 2).sum(2),
    "turned": lambda net, x, other: x.t().contiguous().t(),
    "detached": lambda net, x, other: x + other.detach(),
    "regrouped": lambda net, x, other: x.unflatten(1, (2, 2)).transpose(1, 2).flatten(1),
}
SMOOTH = {
    "first": WHOLE["first"], "second": WHOLE["second"], "scale": WHOLE["scale"],
    "gelu": lambda net, x, other: F.gelu(x), "tanh": lambda net, x, other: x.tanh(),
    "sigmoid": lambda net, x, other: x.sigmoid() + other,
    "softmax": lambda net, x, other: x.softmax(1),
    "log softmax": lambda net, x, other: F.log_softmax(x, 1),
    "layer norm": lambda net, x, other: F.layer_norm(x, (COLUMNS,), net.scale, eps=0.125),
    "bell": lambda net, x, other: (-x * x).exp(), "ratio": lambda net, x, other: x / (1 + x * x),
    "mixed": lambda net, x, other: torch.softmax(x @ other.t(), 1) @ x,
    "sum": WHOLE["sum"], "product": WHOLE["product"], "in place": _in_place,
    "picked": WHOLE["picked"], "cumsum": WHOLE["cumsum"],
    "silu": lambda net, x, other: F.silu(x) - other.mean(0),
    "norm": lambda net, x, other: x / (x.square().sum(1, keepdim=True) + 1).sqrt(),
}
WHOLE_LOSSES = {
    "sum": lambda y: poptorch.identity_loss(y, "sum"),
    "mean": lambda y: poptorch.identity_loss(y, "mean"),
    "number": lambda y: poptorch.identity_loss((y * 0.5).sum(), "none"),
    "l1": lambda y: F.l1_loss(y, torch.ones_like(y), reduction="sum"),
}
SMOOTH_LOSSES = {
    "mse": lambda y: F.mse_loss(y, torch.ones_like(y)),
    "cross entropy": lambda y: F.cross_entropy(y, torch.arange(len(y)) % COLUMNS),
    "nll": lambda y: F.nll_loss(F.log_softmax(y, 1), torch.arange(len(y)) % COLUMNS),
    "binary": lambda y: F.binary_cross_entropy_with_logits(y, torch.full_like(y, 0.25)),
    "mean": WHOLE_LOSSES["mean"],
}


class Net(torch.nn.Module):
    """Runs a program over the tensors among its arguments, and gives them back in their places."""

    def __init__(self, program, loss, is_whole):
        super().__init__()
        self.program, self.loss, self.is_whole = program, loss, is_whole
        self.first = torch.nn.Linear(COLUMNS, COLUMNS)
        self.second = torch.nn.Linear(COLUMNS, COLUMNS)
        self.table = torch.nn.Embedding(WORDS, COLUMNS)
        self.scale = torch.nn.Parameter(torch.ones(COLUMNS))
        if is_whole:
            for p in self.parameters():
                p.data = torch.randint(-2, 3, p.shape).float()

    def _value(self, leaf):
        if leaf.dtype is torch.int64:
            return self.table(leaf)
        return leaf if leaf.dim() == 2 else leaf[:, None].expand(-1, COLUMNS)

    def forward(self, *args, **kwargs):
        leaves, spec = pytree.tree_flatten((args, kwargs))
        places = [n for n, leaf in enumerate(leaves) if torch.is_tensor(leaf)]
        values = [self._value(leaves[n]) for n in places]
        ops = WHOLE if self.is_whole else SMOOTH
        inputs, value = list(values), self.first(values[0])
        for number, name in enumerate(self.program):
            at = number % len(values)
            value = ops[name](self, value, inputs[at])
            values[at] = value
        for n, x in zip(places, values):
            leaves[n] = x
        losses = WHOLE_LOSSES if self.is_whole else SMOOTH_LOSSES
        return pytree.tree_unflatten(leaves, spec), losses[self.loss](value)


@dataclasses.dataclass
class Leaf:
    """A tensor to be made, of ``steps * rows`` rows."""

    kind: str


leaves = st.one_of(st.sampled_from(["matrix", "matrix", "vector", "words"]).map(Leaf),
                   st.sampled_from([None, 1, 2.5, "note", True]))
structures = st.recursive(leaves, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from(["b", "a", "keys"]), inner, max_size=3),
    st.builds(Pair, inner, inner), st.builds(Record, inner, st.none())), max_leaves=5)


@dataclasses.dataclass
class Case:
    """A net, what it is called with, and how."""

    args: list
    kwargs: dict
    program: list
    loss: str
    is_whole: bool
    rows: int
    iterations: int
    replicas: int
    accumulation: int
    momentum: float
    seed: int

    def steps(self):
        return self.iterations * self.replicas * self.accumulation

    def arguments(self):
        """Made again: the tensors of the call."""
        draw = torch.Generator().manual_seed(self.seed)

        def made(leaf):
            if not isinstance(leaf, Leaf):
                return leaf
            size = (self.steps() * self.rows, COLUMNS)[:1 if leaf.kind != "matrix" else 2]
            if leaf.kind == "words":
                return torch.randint(0, WORDS, size, generator=draw)
            if self.is_whole:
                return torch.randint(-3, 4, size, generator=draw).float()
            return torch.randn(size, generator=draw)

        return pytree.tree_map(made, (tuple(self.args), self.kwargs))

    def net(self):
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return Net(self.program, self.loss, self.is_whole)

    def optimizer(self, net):
        return torch.optim.SGD(net.parameters(), lr=0.25 if self.is_whole else 0.05,
                               momentum=self.momentum)


@st.composite
def cases(draw):
    is_whole = draw(st.booleans())
    ops, losses = (WHOLE, WHOLE_LOSSES) if is_whole else (SMOOTH, SMOOTH_LOSSES)
    args = [Leaf("matrix"), *draw(st.lists(structures, max_size=2))]
    args = draw(st.permutations(args))
    return Case(args, draw(st.dictionaries(st.sampled_from(["x", "y"]), structures, max_size=2)),
                draw(st.lists(st.sampled_from(sorted(ops)), min_size=1, max_size=4)),
                draw(st.sampled_from(sorted(losses))), is_whole,
                draw(st.sampled_from([1, 2, 4])),
                1 if is_whole else draw(st.sampled_from([1, 1, 2])),
                draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([1, 1, 2])),
                draw(st.sampled_from([0.0, 0.0, 0.5])), draw(st.integers(0, 2**20)))


def joined(steps):
    """The results of steps, as output mode All returns them."""
    def join(*parts):
        if not torch.is_tensor(parts[0]):
            return parts[0]
        parts = [part.detach() for part in parts]
        if parts[0].dim():
            return torch.cat(parts)
        return torch.stack(parts) if len(parts) > 1 else parts[0]

    return pytree.tree_map(join, *steps)


def eager(case, dtype, nudge=0):
    """Results and weights of PyTorch, from weights that are moved by ``nudge`` of themselves."""
    net = case.net()
    if nudge:
        net = nudged(net, nudge, NUDGE)
    net = net.to(dtype)
    optimizer = case.optimizer(net)

    def part(number):
        def cut(leaf):
            if not torch.is_tensor(leaf):
                return leaf
            rows = leaf.chunk(case.steps())[number]
            return rows.to(dtype) if rows.is_floating_point() else rows

        return pytree.tree_map(cut, arguments)

    arguments, results = case.arguments(), []
    for iteration in range(case.iterations):
        optimizer.zero_grad()
        each = case.replicas * case.accumulation
        for number in range(iteration * each, (iteration + 1) * each):
            args, kwargs = part(number)
            result, loss = net(*args, **kwargs)
            (loss / each).backward()
            results.append((result, loss))
        optimizer.step()
    return joined(results), {n: p.detach().clone() for n, p in net.named_parameters()}


@budget(30)
@given(cases())
def test_steps_are_those_of_pytorch(case):
    options = quiet_options(deviceIterations=case.iterations, replicationFactor=case.replicas,
                            outputMode=poptorch.OutputMode.All,
                            Training__gradientAccumulation=case.accumulation)
    net = case.net()
    model = poptorch.trainingModel(net, options, case.optimizer(net))
    args, kwargs = copy.deepcopy(case.arguments())
    result, error = attempt(model, *args, **kwargs)
    assert error is None, error
    model.copyWeightsToHost()
    ours = result, {n: p.detach().clone() for n, p in net.named_parameters()}
    reference, near = eager(case, torch.float64), eager(case, torch.float32)
    assert pytree.tree_structure(ours[0]) == pytree.tree_structure(near[0])
    runs = [flatten(near)]
    if not case.is_whole:
        runs += [flatten(eager(case, torch.float32, nudge)) for nudge in (1, 2, 3)]
    ours, reference = flatten(ours), flatten(reference)
    assert list(ours) == list(reference)
    for name, expected in reference.items():
        found = ours[name]
        assert found.shape == expected.shape, name
        if case.is_whole or not expected.is_floating_point():
            assert torch.equal(found.double(), expected.double()), f"{name}: {found}, {expected}"
            continue
        limit = 4 * max(relative_error(run[name], expected) for run in runs) + 4e-6
        error = relative_error(found, expected)
        assert error <= limit, f"{name}: error {error}, limit {limit}"
