"""Containers of many classes as arguments, as results, in files and as batches of a loader."""

import collections
import dataclasses

import pytest
import torch
from torch.utils import _pytree as torch_pytree

import poptorch
from tests.api.calls.model_output import Output
from tests.helpers import quiet_options

Pair = collections.namedtuple("Pair", "first second")


class Ordered(collections.OrderedDict):
    """A subclass that torch's pytree does not know."""

    unit = "m"


class Counted(collections.defaultdict):
    """A subclass of another dictionary."""


class Boxes:
    """Known to torch's pytree."""

    def __init__(self, corners, labels, unit="px"):
        self.corners, self.labels, self.unit = corners, labels, unit


@dataclasses.dataclass
class Fielded(dict):
    """A dictionary with fields, which are not its entries."""

    word: str


torch_pytree.register_pytree_node(
    Boxes, lambda boxes: ([boxes.corners, boxes.labels], boxes.unit),
    lambda parts, unit: Boxes(*parts, unit))


def boxes(x):
    return Boxes(x, {"y": x * 2})


def ordered(x):
    made = Ordered(b=x, a=[x * 2])
    made.unit = "cm"
    return made


def fielded(x):
    made = Fielded("w")
    made["x"] = x
    return made


MAKERS = {
    "structseq": lambda x: torch.max(x, dim=1),
    "registered": boxes,
    "OrderedDict": lambda x: collections.OrderedDict(b=x, a=x * 2),
    "its subclass": ordered,
    "defaultdict": lambda x: collections.defaultdict(list, b=x, a=[x * 2]),
    "subclass of defaultdict": lambda x: Counted(int, b=x, a=(x * 2,)),
    "deque": lambda x: collections.deque([x, x * 2], maxlen=5),
    "namedtuple": lambda x: Pair(x, [x * 2]),
    "ModelOutput": lambda x: Output(logits=x, hidden=(x * 2, x * 3)),
    "dictionary with fields": fielded,
}


def check_equal(ours, expected):
    """Two trees are of the same classes and hold the same."""
    if isinstance(expected, torch.Tensor):
        # int64 is int32 on the device
        assert type(ours) is torch.Tensor and torch.equal(ours.to(expected.dtype), expected)
        return
    assert type(ours) is type(expected)
    if isinstance(expected, (list, tuple, dict, collections.deque)):
        ours_parts, parts = (list(value.items()) if isinstance(value, dict) else list(value)
                             for value in (ours, expected))
        assert len(ours_parts) == len(parts)
        for one, other in zip(ours_parts, parts):
            check_equal(one, other)
        for name in ("default_factory", "maxlen"):
            assert getattr(ours, name, None) == getattr(expected, name, None)
    elif not hasattr(expected, "__dict__"):
        assert ours == expected
    check_equal_attributes(ours, expected)


def check_equal_attributes(ours, expected):
    ours, expected = (getattr(value, "__dict__", {}) for value in (ours, expected))
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        check_equal(ours[name], value)


class Make(torch.nn.Module):
    """Makes a container in forward."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        return MAKERS[self.kind](x + 1)


X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("kind", MAKERS)
def test_results(kind, tmp_path):
    model = poptorch.inferenceModel(Make(kind), quiet_options())
    for x in (X, X * 3):
        check_equal(model(x), MAKERS[kind](x + 1))
    loaded = poptorch.load(model.save(tmp_path / "net.poptorch"))
    check_equal(loaded(X), MAKERS[kind](X + 1))


class Echo(torch.nn.Module):
    def forward(self, tree):
        return tree


@pytest.mark.parametrize("kind", MAKERS)
def test_arguments(kind, tmp_path):
    model = poptorch.inferenceModel(Echo(), quiet_options(deviceIterations=2))
    for x in (X, X * 3):
        check_equal(model(MAKERS[kind](x)), MAKERS[kind](x))
    loaded = poptorch.load(model.save(tmp_path / "net.poptorch"))
    check_equal(loaded(MAKERS[kind](X)), MAKERS[kind](X))
    for again in (model, loaded):
        with pytest.raises(poptorch.Error, match="Type mismatch for tree: expected .* got .*tuple"):
            again((X, X))


@pytest.mark.parametrize("first, other, words", [
    (Boxes(X, X), Boxes(X, X, "cm"), "tree: expected a container with 'px' in addition to its "
                                     "parts but got one with 'cm'. Values other than tensors are "),
    (Boxes(X, X), Boxes(X, {"y": X}), "Type mismatch for tree.1: expected .*Tensor"),
    (Output(logits=X), Output(logits=X, loss=X), r"Unexpected arguments: loss. \(in tree\)"),
    (Output(logits=X), Output(loss=X), r"tree: expected a container with \['logits'\] in addition"),
    (Output(logits=X), Output(logits=X[:1]), "tree.logits: expected torch.Size"),
    (torch.max(X, dim=1), torch.min(X, dim=1), "Type mismatch for tree: expected .*max.*min"),
    (collections.deque([X]), collections.deque([X, X]), "Number of items in tree mismatch"),
])
def test_later_arguments_that_differ(first, other, words):
    model = poptorch.inferenceModel(Echo(), quiet_options())
    model(first)
    with pytest.raises(poptorch.Error, match=words):
        model(other)


def test_what_a_result_of_training_is_made_of():
    class Net(torch.nn.Linear):
        def forward(self, x):
            logits = super().forward(x)
            return Output(loss=poptorch.identity_loss(logits.square(), "mean"), logits=logits)

    net = Net(3, 2)
    expected = net(X)
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.1))
    output = model(X)
    assert type(output) is Output and list(output) == ["loss", "logits"]
    assert torch.allclose(output.loss, expected.loss) and output.loss is output["loss"]
    assert torch.allclose(output.logits, expected.logits) and output.hidden is None


@pytest.mark.parametrize("make", [
    lambda items: items, lambda items: {"a": (items,)}, lambda items: collections.deque([items])])
def test_arguments_and_results_that_hold_themselves(make):
    items = [X]
    items.append(items)
    model = poptorch.inferenceModel(Echo(), quiet_options())
    with pytest.raises(poptorch.Error, match=r"\[arguments\] tree is a \w+ that holds itself"):
        model(make(items))

    class Ring(torch.nn.Module):
        def forward(self, x):
            items[0] = x
            return make(items)

    with pytest.raises(poptorch.Error, match=r"\[capture\] a result is a \w+ that holds itself"):
        poptorch.inferenceModel(Ring(), quiet_options())(X)


# -- the loader --------------------------------------------------------------------------------


def all_kinds(rows):
    """One item with a container of each kind."""
    x = torch.stack(rows)
    return {kind: make(x) for kind, make in MAKERS.items()}


@pytest.mark.parametrize("mode", [poptorch.DataLoaderMode.Sync, poptorch.DataLoaderMode.Async])
def test_batches(mode):
    data = torch.randn(5, 3)
    loader = poptorch.DataLoader(
        quiet_options(deviceIterations=2), data, batch_sampler=[[0, 1], [2, 3, 4]],
        collate_fn=all_kinds, mode=mode,
        async_options={"sharing_strategy": poptorch.SharingStrategy.Fork} if mode else None)
    [item] = loader
    check_equal(item, all_kinds(list(data)))


def test_batches_of_another_size():
    data = torch.randn(6, 3)
    loader = poptorch.DataLoader(
        quiet_options(deviceIterations=2), data, batch_size=3, collate_fn=all_kinds,
        mode=poptorch.DataLoaderMode.AsyncRebatched, rebatched_worker_size=2,
        async_options={"sharing_strategy": poptorch.SharingStrategy.Fork})
    [item] = loader
    check_equal(item, all_kinds(list(data)))


@pytest.mark.parametrize("collate, words", [
    (lambda rows: ring(rows), r"\[DataLoader\] an item is a list that holds itself"),
    (lambda rows: boxes_of(rows), "the context differs between micro-batches .* 1 and 2"),
])
def test_batches_that_cannot_be_joined(collate, words):
    loader = poptorch.DataLoader(quiet_options(deviceIterations=2), torch.randn(3, 3),
                                 batch_sampler=[[0], [1, 2]], collate_fn=collate)
    with pytest.raises((poptorch.Error, ValueError), match=words):
        list(loader)


def ring(rows):
    items = [torch.stack(rows)]
    items.append(items)
    return items


def boxes_of(rows):
    return Boxes(torch.stack(rows), torch.stack(rows), len(rows))


class Alike(torch.nn.Module):
    def forward(self, numbers, **named):
        inner = named["a"]["b"] - named["a.b"]
        numbers["1"].add_(1)
        return {1: numbers[1] * 2, "1": numbers["1"] * 3, "1.value": inner, (1,): numbers[(1,)]}


@pytest.mark.parametrize("iterations", [1, 2])
def test_keys_that_read_alike_are_different_arguments(iterations):
    def arguments():
        rows = torch.arange(24.0).reshape(6, 4)
        return {1: rows[0], "1": rows[1], "1.value": rows[2], (1,): rows[3]}, \
            {"a": {"b": rows[4]}, "a.b": rows[5]}

    model = poptorch.inferenceModel(Alike(), quiet_options().deviceIterations(iterations))
    (ours, named), (theirs, expected_named) = arguments(), arguments()
    for _ in range(2):
        found, expected = model(ours, **named), Alike()(theirs, **expected_named)
        assert list(found) == list(expected)
        for one, other in zip((*found.values(), *ours.values()),
                              (*expected.values(), *theirs.values())):
            assert torch.equal(one, other)
    names = model.getTensorNames()
    assert len(set(names)) == len(names)
