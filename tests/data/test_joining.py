"""Micro-batches joined to items, and items cut into rows."""

import collections
import dataclasses

import numpy
import pytest
import torch

import poptorch
from poptorch.data._joining import combine_batch_tensors_gen, join, row_count, rows

Pair = collections.namedtuple("Pair", "a b")


class Ordered(collections.OrderedDict):
    """A class whose kind is kept."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """Two tensors and a constant."""

    x: torch.Tensor
    y: torch.Tensor
    kind: str


class Graph:
    """What a library of graph networks calls a batch."""

    def __init__(self, nodes, count):
        self.nodes, self.count = nodes, count


class GraphParser(poptorch.ICustomArgParser):
    """The tensors of a graph."""

    def yieldTensors(self, struct):
        yield struct.nodes
        yield struct.count

    def reconstruct(self, original_structure, tensor_iterator):
        return type(original_structure)(*tensor_iterator)


class SpecialGraph(Graph):
    """A subclass without a parser of its own."""


def part(first, count):
    x = torch.arange(first, first + count)
    return Ordered(x=x, pair=Pair(x * 2, [x.numpy(), None]), names=[f"{v}" for v in x.tolist()],
                   sample=Sample(x, x + 0.5, "kind"), total=x.sum(), scale=3)


def test_join():
    whole = join([part(0, 2), part(2, 1), part(3, 3)])
    x = torch.arange(6)
    assert type(whole) is Ordered and type(whole["pair"]) is Pair and whole["scale"] == 3
    assert whole["x"].equal(x) and whole["pair"].a.equal(x * 2)
    array = whole["pair"].b[0]
    assert isinstance(array, numpy.ndarray) and array.tolist() == x.tolist()
    assert whole["names"] == list("012345") and whole["total"].tolist() == [1, 2, 12]
    assert whole["sample"].y.equal(x + 0.5) and whole["sample"].kind == "kind"


def test_one_part_stays_as_it_is():
    item = part(0, 2)
    assert join([item]) is item and item["total"].ndim == 0


def test_registered_classes(monkeypatch):
    monkeypatch.setattr("poptorch.custom_args._parsers", {})
    poptorch.registerCustomArgParser(Graph, GraphParser())
    parts = [{"graph": SpecialGraph(torch.ones(n, 3), torch.tensor(n))} for n in (2, 5)]
    graph = join(parts)["graph"]
    assert type(graph) is SpecialGraph and graph.nodes.shape == (7, 3)
    assert graph.count.tolist() == [2, 5] and parts[0]["graph"].nodes.shape == (2, 3)


def test_rows():
    whole = join([part(0, 4)])
    del whole["total"]
    assert row_count(whole) == 4
    middle = rows(whole, 1, 3)
    assert middle["x"].tolist() == [1, 2] and middle["names"] == ["1", "2"]
    assert middle["sample"].y.tolist() == [1.5, 2.5] and middle["pair"].b[0].tolist() == [1, 2]


def test_combine_batch_tensors_gen():
    batches = [[torch.ones(2, 3), torch.tensor(1)], (torch.zeros(1, 3), torch.tensor(2))]
    joined = combine_batch_tensors_gen(iter(batches))
    assert next(joined).sum(1).tolist() == [3, 3, 0] and next(joined).tolist() == [1, 2]
    assert next(joined, None) is None and list(combine_batch_tensors_gen([])) == []
    with pytest.raises(ValueError):
        list(combine_batch_tensors_gen([batches[0], batches[1][:1]]))


@pytest.mark.parametrize("one, other, words", [
    ({"a": 1}, {"b": 1}, r"the keys differs .*\['a'\] and \['b'\]"),
    ({"a": {"b": 1}}, {"a": {"b": 2}}, "the value of a.b differs .*: 1 and 2"),
    ([torch.ones(1)], [torch.ones(1), 2], "the length differs .*: 1 and 2"),
    ((1, torch.ones(1)), (1, None), "the type of 1 differs .*: Tensor and NoneType"),
    (torch.ones(1), 1.0, "the type differs"),
])
def test_parts_that_differ(one, other, words):
    with pytest.raises(ValueError, match=words):
        join([one, other])


@pytest.mark.parametrize("item, words", [
    ((torch.ones(2), torch.ones(3)), "lengths 2, 3"), ((torch.tensor(1),), "lengths None"),
    ((1, "a"), "lengths none")])
def test_items_without_rows(item, words):
    with pytest.raises(ValueError, match=words):
        row_count(item)
