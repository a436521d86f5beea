"""Micro-batches joined to items, and items cut into rows."""

import collections
import dataclasses

import numpy
import pytest
import torch
from torch.utils.data import default_collate

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


def test_one_part_is_joined_as_several_are():
    item = part(0, 2)
    total = item.pop("total")
    assert join([item]) is item
    item["total"] = total
    assert join([item])["total"].tolist() == [1] and join([item])["x"].equal(item["x"])
    assert join([numpy.array(3)]).tolist() == [3]


@pytest.mark.parametrize("sample", [
    lambda i: (torch.tensor(i), f"n{i}"), lambda i: (torch.tensor(i), "same"),
    lambda i: {"x": torch.tensor(i), "tok": [f"a{i}", f"b{i}"], "n": f"s{i}"},
    lambda i: {"x": torch.tensor(i), "tok": [f"a{i}", f"b{i}", b"c"]},
    lambda i: (f"a{i}", f"b{i}"), lambda i: f"a{i}", lambda i: Pair(f"a{i}", torch.tensor(i)),
    lambda i: ([[f"a{i}", f"b{i}"], [f"c{i}", f"d{i}"]], torch.tensor(i)),
    lambda i: {"k": (f"a{i}", {"m": f"b{i}", "n": [f"c{i}"]}, Pair("p", f"q{i}"))},
    lambda i: {"k": ((), {}, f"c{i}"), "x": [f"a{i}", torch.tensor(i)]},
], ids=range(10))
@pytest.mark.parametrize("counts", [(2, 2), (3, 1, 2), (1, 1), (1, 3)])
def test_join_of_what_torch_collates(sample, counts):
    samples = [sample(i) for i in range(sum(counts))]
    given, parts = iter(samples), []
    for count in counts:
        parts.append(default_collate([next(given) for _ in range(count)]))
    whole = default_collate(samples)
    assert str(join(parts)) == str(whole)
    if count := counts[0] - 1:
        assert str(rows(parts[0], 0, count)) == str(default_collate(samples[:count]))


def test_lists_and_tuples_of_other_collate_functions():
    """A list has an entry for each sample, whatever that is; a tuple of texts that has not is a
    constant."""
    def item(first, count):
        words = [[f"w{first + i}"] * (i + 1) for i in range(count)]
        return {"x": torch.zeros(count), "words": words, "classes": ("cat", "dog")}

    whole = join([item(0, 2), item(2, 3)])
    assert whole["words"] == [["w0"], ["w1"] * 2, ["w2"], ["w3"] * 2, ["w4"] * 3]
    assert whole["classes"] == ("cat", "dog") and len(whole["x"]) == 5
    assert join([item(0, 3), item(2, 3)])["classes"] == ("cat", "dog")
    with pytest.raises(ValueError, match="the length of 1 differs .*: 2 and 1"):
        join([(torch.zeros(3), ("a", "b")), (torch.zeros(2), ("c",))])


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


def test_rows_of_samples_that_hold_empty_lists():
    whole = default_collate([(torch.tensor([i, i]), [], {"boxes": []}) for i in range(4)])
    assert row_count(whole) == 4
    x, empty, nested = join([rows(whole, 1, 3), rows(whole, 3, 4)])
    assert x.tolist() == [[1, 1], [2, 2], [3, 3]] and empty == [] and nested == {"boxes": []}
    assert row_count([[], torch.zeros(0)]) == 0


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
