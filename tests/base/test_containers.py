"""Which objects are containers, and how one is made from other parts."""

import collections
import dataclasses
import os
import time
from pathlib import Path

import pytest
import torch
from torch.utils import _pytree as torch_pytree

import poptorch
from poptorch._base.pytree import containers
from poptorch._base.pytree.containers import (
    FIELDS,
    MAPPING,
    PARSED,
    REGISTERED,
    SEQUENCE,
    holds,
    kind_of,
)
from poptorch._base.pytree.structure import Structure
from tests.helpers import quiet_options

PACKAGE = Path(poptorch.__file__).parent
Pair = collections.namedtuple("Pair", "a b")
X, Y = torch.ones(2), torch.zeros(2)


class Registered:
    """A class that torch's pytree knows."""

    def __init__(self, x, word):
        self.x, self.word = x, word


class Table(dict):
    """A dictionary with an attribute and a constructor of its own."""

    def __init__(self, entries, unit):
        super().__init__(entries)
        self.unit = unit


class Row(list):
    """A list with an attribute and a constructor of its own."""

    def __init__(self, unit):
        super().__init__()
        self.unit = unit


class Range(tuple):
    """A tuple with a constructor of its own."""

    def __new__(cls, low, high):
        made = super().__new__(cls, (low, high))
        made.unit = "m"
        return made

    @property
    def high(self):
        return self[1]


class Named(Pair):
    """A named tuple with a constructor of its own."""

    def __new__(cls, both):
        return super().__new__(cls, both, both)


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    """A dataclass without a dictionary."""

    x: torch.Tensor
    n: int = 3


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr("poptorch.custom_args._parsers", {})
    torch_pytree.register_pytree_node(
        Registered, lambda value: ([value.x], value.word),
        lambda parts, word: Registered(*parts, word))
    yield
    del containers.SUPPORTED_NODES[Registered]


def changed(value):
    """``value`` with other tensors."""
    leaves, structure = Structure.of(value)
    return structure.unflatten([leaf + 1 for leaf in leaves])


@pytest.mark.parametrize("value", [Range(X, Y), Named(X), Pair(X, 3), (X, 3)])
def test_tuples(value):
    made = changed(value)
    assert type(made) is type(value) and torch.equal(made[0], X + 1)
    assert getattr(made, "unit", None) == getattr(value, "unit", None)


@pytest.mark.parametrize("value", [time.gmtime(0), os.stat_result(range(10))])
def test_tuples_of_c(value):
    leaves, structure = Structure.of(value)
    assert leaves == [] and structure.unflatten([]) == value
    assert type(structure.unflatten([])) is type(value)


def test_a_result_with_a_constructor_of_its_own():
    class Returns(torch.nn.Module):
        def forward(self, pair):
            return Range(pair[0] + 1, pair.high)

    result = poptorch.inferenceModel(Returns(), quiet_options())(Range(X, Y))
    assert type(result) is Range and torch.equal(result[0], X + 1) and torch.equal(result.high, Y)


def test_private_names_of_torch():
    assert containers.SUPPORTED_NODES is torch_pytree.SUPPORTED_NODES
    parts, context = containers.SUPPORTED_NODES[collections.deque].flatten_fn(
        collections.deque([1], 3))
    assert (list(parts), context) == ([1], 3)
    assert containers.SUPPORTED_NODES[collections.deque].unflatten_fn([2], 3).maxlen == 3
    keys, _ = containers.SUPPORTED_NODES[dict].flatten_with_keys_fn({"a": 1})
    assert keys[0][0].key == "a"
    assert containers.is_namedtuple_class(Pair) and not containers.is_namedtuple_class(tuple)
    assert not containers.is_constant_class(Registered)


def test_kinds():
    found = {kind: [] for kind in (PARSED, REGISTERED, MAPPING, SEQUENCE, FIELDS, None)}
    for cls in (Registered, torch.return_types.max, collections.deque, torch.Size, dict, Table, Row,
                collections.OrderedDict, collections.defaultdict, Pair, list, Slotted, str, int,
                torch.Tensor, type(None)):
        found[kind_of(cls)].append(cls)
    assert found == {
        PARSED: [], REGISTERED: [Registered, torch.return_types.max, collections.deque],
        MAPPING: [dict, Table, collections.OrderedDict, collections.defaultdict],
        SEQUENCE: [torch.Size, Row, Pair, list], FIELDS: [Slotted],
        None: [str, int, torch.Tensor, type(None)]}


def test_a_parser_goes_before_what_torch_knows():
    class Parser(poptorch.ICustomArgParser):
        def yieldTensors(self, struct):
            yield struct.x

        def reconstruct(self, original_structure, tensor_iterator):
            return Registered(next(tensor_iterator), f"{original_structure.word} parsed")

    assert changed(Registered(X, "word")).word == "word"
    poptorch.registerCustomArgParser(Registered, Parser())
    assert kind_of(Registered) is PARSED
    assert changed(Registered(X, "word")).word == "word parsed"


def test_registered_constants_are_leaves():
    @dataclasses.dataclass(frozen=True)
    class Settings:
        norm: str

    torch_pytree.register_constant(Settings)
    try:
        assert containers.is_constant_class(Settings) and kind_of(Settings) is None
    finally:
        del containers.SUPPORTED_NODES[Settings]


def test_classes_and_attributes_stay():
    table = Table({"x": X}, "m")
    row = Row("m")
    row.append(X)
    counts = collections.defaultdict(list, x=X)
    for value in (table, row):
        made = changed(value)
        assert type(made) is type(value) and made.unit == "m"
        assert made[next(iter(value)) if value is table else 0].equal(X + 1)
    assert table["x"] is X and row[0] is X
    made = changed(counts)
    assert type(made) is collections.defaultdict and made.default_factory is list
    slotted = changed(Slotted(X, 4))
    assert slotted.x.equal(X + 1) and slotted.n == 4
    most = changed(torch.max(torch.eye(2), dim=1))
    assert type(most) is torch.return_types.max and most.values.equal(X + 1)
    assert type(changed(collections.deque([X], maxlen=4))) is collections.deque


def test_an_attribute_that_is_a_part_is_set_by_the_class():
    class Mirrored(dict):
        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            self.__dict__[key] = value

    mirrored = Mirrored()
    mirrored["x"] = X
    assert changed(mirrored).x.equal(X + 1) and mirrored.x is X


def test_tensors_beside_the_parts_are_refused():
    table = Table({"x": X}, Y)
    with pytest.raises(poptorch.Error, match=r"\[capture\] a result is or contains a Table: its "
                                             r"attribute unit holds tensors.*Put them among"):
        Structure.of([table])
    with pytest.raises(poptorch.Error, match=r"\[where\] a result is or contains a Registered: "
                                             r"the context that is registered"):
        Structure.of(Registered(X, (1, Y)), "where")


def test_holds():
    items = [1, {"a": ({"b": Registered(X, 1)},)}]
    assert holds(items, torch.Tensor) and not holds([1, "a", {}], torch.Tensor)
    ring = [1]
    ring.append(ring)
    assert not holds(ring, torch.Tensor) and holds(ring, int)


def test_sizes_stay_sizes():
    class Net(torch.nn.Module):
        def forward(self, x, size):
            return x.new_ones(size) * size.numel(), {"size": x.shape}

    y, rest = poptorch.inferenceModel(Net(), quiet_options())(torch.ones(2, 3), torch.Size([2, 2]))
    assert torch.equal(y, torch.full((2, 2), 4.0))
    assert type(rest["size"]) is torch.Size and rest["size"].numel() == 6
