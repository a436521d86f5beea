"""What functions of loops and branches take and return: random containers, or no tensors at all."""

import copy
import random
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as map_rows
from torch.utils._pytree import tree_leaves, tree_map, tree_structure

import poptorch
from poptorch._base.pytree.structure import Structure
from tests.capture.common import Function
from tests.fuzz.judge import budget
from tests.helpers import check_wide, quiet_options

ROWS, ROUNDS = 3, 2


def container(rng: random.Random, depth: int = 2, may_be_empty: bool = True):
    """A random container of None, in whose places tensors will be; or None itself."""
    if depth == 0 or rng.random() < 0.3:
        return None
    parts = [container(rng, depth - 1) for _ in range(rng.randint(0 if may_be_empty else 1, 3))]
    if not may_be_empty and not places(parts):
        parts.append(None)
    kind = rng.choice((tuple, list, dict))
    return kind(parts) if kind is not dict else {f"k{i}": x for i, x in enumerate(parts)}


def places(tree) -> int:
    return len(tree_leaves(tree, is_leaf=lambda x: x is None))


def filled(tree, leaves):
    given = iter(leaves)
    return tree_map(lambda _: next(given), tree, is_leaf=lambda x: x is None)


def mixed(taken, like, w, factor: float):
    """Tensors like a container, each computed from all those that are taken."""
    total = sum((x * (0.3 + 0.1 * i) for i, x in enumerate(tree_leaves(taken))), w)
    return filled(like, [(total * factor + number).tanh() * w for number in range(places(like))])


def is_ours() -> bool:
    return poptorch.isRunningOnIpu()


def stacked(trees):
    return tree_map(lambda *rows: torch.stack(rows), *trees)


def row(tree, number: int):
    return tree_map(lambda x: x[number], tree)


# Each of them draws containers, and returns a function of tensors to begin with (rows of a matrix
# of which each is one more) and of a parameter.


def a_scan(rng):
    carried, rows, given = (container(rng, may_be_empty=False), container(rng, may_be_empty=False),
                            container(rng))
    backwards = rng.random() < 0.3

    def function(x, w):
        begun = filled(carried, [x[0] + i for i in range(places(carried))])
        table = filled(rows, [x * (i + 1) for i in range(places(rows))])

        def step(carry, part):
            return (mixed((carry, part), carried, w, 0.5), mixed((part, carry), given, w, 0.7))

        if is_ours():
            return scan(step, begun, table, reverse=backwards)
        found = []
        for number in range(ROWS)[::-1 if backwards else 1]:
            begun, made = step(begun, row(table, number))
            found.append(made)
        return begun, stacked(found[::-1 if backwards else 1])

    return function


def an_associative_scan(rng):
    rows = container(rng, may_be_empty=False)

    def function(x, w):
        table = filled(rows, [x * w + i for i in range(places(rows))])
        if is_ours():
            return associative_scan(lambda a, b: tree_map(torch.add, a, b), table, 0,
                                    combine_mode="generic")
        return tree_map(lambda part: part.cumsum(0), table)

    return function


def a_map(rng):
    rows, given = container(rng, may_be_empty=False), container(rng)

    def function(x, w):
        table = filled(rows, [x * (i + 1) for i in range(places(rows))])

        def each(part, beside):
            return mixed((part, beside), given, w, 0.5)

        if is_ours():
            return map_rows(each, table, x[0])
        return stacked([each(row(table, number), x[0]) for number in range(ROWS)])

    return function


def a_while_loop(rng):
    carried = tuple(container(rng) for _ in range(rng.randint(0, 2)))

    @torch.no_grad()
    def function(x, w):
        values = (torch.zeros((), dtype=torch.int32),
                  *filled(carried, [x[0] + i for i in range(places(carried))]))

        def step(number, *trees):
            return (number + 1, *mixed(trees, carried, w, 0.5))

        if is_ours():
            return while_loop(lambda number, *trees: number < ROUNDS, step, values)
        for _ in range(ROUNDS):
            values = step(*values)
        return values

    return function


def a_cond(rng):
    taken = tuple(container(rng) for _ in range(rng.randint(0, 2)))
    given = container(rng)

    def function(x, w):
        operands = filled(taken, [x[0] + i for i in range(places(taken))])
        branches = [lambda *trees, factor=factor: mixed(trees, given, w, factor)
                    for factor in (0.5, 0.7)]
        if is_ours():
            return torch.cond(x.sum() > 0, *branches, operands)
        return branches[0 if x.sum() > 0 else 1](*operands)

    return function


def a_vmap(rng):
    rows, given = container(rng, may_be_empty=False), container(rng, may_be_empty=False)

    def function(x, w):
        table = filled(rows, [x * (i + 1) for i in range(places(rows))])
        return torch.vmap(lambda part: mixed(part, given, w, 0.5))(table)

    return function


def _as_returned(rng, count: int):
    """What a body of poptorch's functions may return: a list or a tuple; or one tensor."""
    kinds = [list, tuple, *([lambda values: next(iter(values))] if count == 1 else [])]
    return rng.choice(kinds)


def a_for_loop(rng):
    count = rng.randint(0, 3)
    kind = _as_returned(rng, count)

    def function(x, w):
        def step(*values):
            return kind(mixed(values, [None] * count, w, 0.5))

        return poptorch.for_loop(ROUNDS, step, [x[0] + i for i in range(count)])

    return function


def a_poptorch_cond(rng):
    count = rng.randint(0, 3)
    kinds = [_as_returned(rng, count) for _ in "ab"]
    taken = [rng.randint(0, 2) for _ in "ab"]

    def function(x, w):
        bodies = [lambda *values, kind=kind, factor=factor: kind(
            mixed(values, [None] * count, w, factor)) for kind, factor in zip(kinds, (0.5, 0.7))]
        inputs = [[x[0] + i for i in range(number)] for number in taken]
        return poptorch.cond((x.sum() > 0).reshape(1), bodies[0], inputs[0], bodies[1], inputs[1])

    return function


FUNCTIONS = [a_scan, an_associative_scan, a_map, a_while_loop, a_cond, a_vmap, a_for_loop,
             a_poptorch_cond]


def net_of(function) -> Function:
    def forward(m, x):
        found = function(x * m.w, m.w)
        loss = sum((part.double().sin().sum() for part in tree_leaves(found)), m.w.sum())
        return found, poptorch.identity_loss(loss, "sum")

    return Function(forward, {"w": torch.rand(3, dtype=torch.double) + 0.5})


def check(net: Function, x: torch.Tensor) -> None:
    eager = copy.deepcopy(net)
    expected = eager(x)
    expected[-1].backward()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    with poptorch.testing.wide(), poptorch.testing.keep_gradients():
        models = [poptorch.inferenceModel(net, quiet_options()),
                  poptorch.trainingModel(net, quiet_options(), optimizer)]
        for model in models:
            found = model(x)
            assert tree_structure(found) == tree_structure(expected)
            check_wide(tree_leaves(found), tree_leaves(expected))
        check_wide(poptorch.testing.gradients(models[1]), {"w": eager.w.grad})
        for model in models:
            model.destroy()


@pytest.mark.parametrize("kind", FUNCTIONS)
@given(seed=st.integers(0, 2**32))
@budget(2)
def test_structures_values_and_gradients(kind, seed):
    check(net_of(kind(random.Random(seed))), torch.randn(ROWS, 3, dtype=torch.double))


BY_HAND = {
    "scan": lambda x, w: scan(lambda c, part: ((c[0] + part[0], c[1] * part[1]), {"y": c[0] * w}),
                              (x[0], x[1]), (x, x + 1)),
    "while_loop": lambda x, w: while_loop(lambda y: y.sum() < 9, lambda y: y + 2, (x[0] * 0,)),
    "cond": lambda x, w: torch.cond(x.sum() > 0, lambda part: part["a"][0] * 2,
                                    lambda part: part["a"][0] * 3, ({"a": [x]},)),
    "map": lambda x, w: map_rows(lambda part: None, x),
}
RESULTS = {"scan": ("0.0", "0.1", "1.y"), "while_loop": ("",), "cond": ("",), "map": ()}


@pytest.mark.parametrize("name", BY_HAND)
def test_structures_by_hand(name):
    model = poptorch.inferenceModel(Function(lambda m, x: BY_HAND[name](x, x[0])), quiet_options())
    assert [*Structure.of(model(torch.ones(3, 2)))[1].paths] == [*RESULTS[name]]
    model.destroy()


def test_branches_whose_keys_differ():
    def forward(m, x):
        return torch.cond(x.sum() > 0, lambda: {"a": x * 1, "b": x * 2},
                          lambda: {"b": x * 3, "a": x * 4})

    model = poptorch.inferenceModel(Function(forward), quiet_options())
    with pytest.raises(poptorch.Error, match=re.escape(
            "[cond] the branches return different structures, with tensors at ['a', 'b'] and at "
            "['b', 'a']. Return the same containers")):
        model(torch.ones(2))
