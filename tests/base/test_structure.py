"""Structure: trees taken apart, compared, put together, written as data."""

import collections
import dataclasses

import pytest
import torch
from torch.utils import _pytree as torch_pytree

from poptorch._base.pytree import structure as pytree
from poptorch._base.pytree.structure import Mismatch, Structure
from poptorch.errors import Error

Pair = collections.namedtuple("Pair", "a b")
X, Y = torch.ones(2), torch.zeros(3)


@dataclasses.dataclass
class Sample:
    x: torch.Tensor
    kind: str = "none"


def tree():
    return {"a": [X, Pair(None, Y)], "s": Sample(X, "k"), "d": collections.deque([Y]), "n": 3}


def test_leaves_in_order():
    leaves, structure = Structure.of(tree())
    assert [leaf is expected for leaf, expected in zip(leaves, (X, Y, X, Y))] == [True] * 4
    assert structure.paths == ["a.0", "a.1.1", "s.x", "d.0"]
    assert [(path, part and part.value) for path, part in structure.leaves()] == [
        ("a.0", None), ("a.1.0", None), ("a.1.1", None), ("s.x", None), ("s.kind", "k"),
        ("d.0", None), ("n", 3)]
    made = structure.unflatten("1234")
    assert made == {"a": ["1", Pair(None, "2")], "s": Sample("3", "k"),
                    "d": collections.deque("4"), "n": 3}


def test_a_single_leaf():
    assert Structure.of(X)[1].unflatten([5]) == 5 and Structure.of(X)[1].paths == [""]
    assert Structure.of("x")[1].unflatten([]) == "x"


def test_what_varies_may_be_chosen():
    leaves, structure = Structure.of([1, [2, "a"]], varies=lambda value: value == [2, "a"])
    assert leaves == [[2, "a"]] and structure.unflatten([7]) == [1, 7]
    assert pytree.map_only(str, str.upper, (1, ["b", {"k": "c"}])) == (1, ["B", {"k": "C"}])


def test_flatten_like_follows_keys():
    _, structure = Structure.of({"a": X, "b": [1, Y]})
    assert structure.flatten_like({"b": [2, "y"], "a": "x"}) == ["x", 2, "y"]
    bare = structure.comparing({})
    assert bare.flatten_like({"b": [2, "y"], "a": "x"}) == ["x", 2, "y"]


@pytest.mark.parametrize("value, other, path, what", [
    ({"a": [X]}, {"a": (X,)}, "a", "type"), ({"a": {"b": X}}, {"a": {"c": X}}, "a", "keys"),
    ([[X, X]], [[X]], "0", "length"), (Pair(X, [X]), Pair(X, [X, 1]), "1", "length"),
    ((1, collections.deque([X], 3)), (1, collections.deque([X], 4)), "1", "context"),
    (collections.defaultdict(int, a=X), collections.defaultdict(list, a=X), "", "context"),
    (X, [X], None, None)])
def test_mismatches(value, other, path, what):
    structure = Structure.of(value)[1]
    if what is None:
        assert structure.flatten_like(other) == [other]
        return
    with pytest.raises(Mismatch) as caught:
        structure.flatten_like(other)
    assert (caught.value.path, caught.value.what) == (path, what)


def test_trees_that_hold_themselves():
    items, table, queue = [X], {}, collections.deque()
    items.append({"again": items})
    table["self"] = table
    queue.append(queue)
    for value in (items, table, queue):
        with pytest.raises(Error, match=r"\[here\] it is a \w+ that holds itself"):
            Structure.of(value, "here", "it")
    with pytest.raises(Error, match=r"\[here\] second is a list that holds itself"):
        Structure.of_named({"first": X, "second": items}, "here")


def test_the_depth_of_trees_is_limited_before_pythons_own_limit():
    def nested(depth, value):
        return nested(depth - 1, [value]) if depth else value

    leaves, structure = Structure.of(nested(pytree.MAX_DEPTH, X))
    assert leaves == [X] and structure.unflatten([Y]) == nested(pytree.MAX_DEPTH, Y)
    with pytest.raises(Error, match=f"nested more than {pytree.MAX_DEPTH} levels deep"):
        Structure.of(nested(pytree.MAX_DEPTH + 1, X))

    # Nothing else that Python calls meanwhile, such as a finalizer, meets that limit.
    asked, items = [], []
    items.append(items)
    with pytest.raises(Error, match="holds itself"):
        Structure.of(items, varies=lambda value: asked.append(value) or False)
    assert len(asked) == pytree.MAX_DEPTH + 1


@pytest.mark.parametrize("value, is_closed", [
    ({1, 2}, False), ({X}, True), (iter([]), True), ("text", False), (range(3), False)])
def test_closed_leaves(value, is_closed):
    assert pytree.is_closed(value) is is_closed


# -- as data -----------------------------------------------------------------------------------


def test_data_and_back():
    structure = Structure.of(tree())[1]
    again = Structure.from_data(structure.to_data(), "here")
    assert again.paths == structure.paths
    assert again.unflatten("1234") == structure.unflatten("1234")
    assert again.flatten_like(tree()) == structure.flatten_like(tree())


def test_a_context_that_is_more_than_data_is_not_written():
    class Called:
        def __init__(self, x):
            self.x = x

    torch_pytree.register_pytree_node(Called, lambda value: ([value.x], print),
                                      lambda parts, function: function(*parts))
    try:
        structure = Structure.of([Called(X)])[1]
        with pytest.raises(Error, match=r"\[save\] a Called .* besides its parts <built-in"):
            structure.to_data()
        data = "registered", Called, ("0",), print, None, (None,)
        with pytest.raises(ValueError, match="here has <built-in .* more than data"):
            Structure.from_data(data, "here")
    finally:
        del torch_pytree.SUPPORTED_NODES[Called]
    data = "registered", Called, ("0",), 3, None, (None,)
    with pytest.raises(ValueError, match="here is a container of kind registered.*Register"):
        Structure.from_data(data, "here")


@pytest.mark.parametrize("data, words", [
    (("sequence", dict, (0,), None, None, (None,)), "kind sequence and of"),
    (("sequence", tuple, (0, 1), None, None, (None,)), "has 1 parts with the keys"),
    (("mapping", dict, ("a", "a"), None, None, (None, None)), "2 parts with the keys"),
    (("dataclass", Sample, ("x", "sort"), None, None, (None, None)), "others"),
    (("mapping", dict, ("a",), None, ({}, {"__class__": int}), (None,)), "no such slot"),
    (("mapping", dict, ("a",), None, None, ([None],)), r"here.a is \[None\], expected a tuple"),
    (("other", dict, (), None, None, ()), "here.0. is 'other', expected one of"),
    (("mapping", dict, (), None, ({},), ()), "here is .*expected a tuple of 2"),
    (("constant",), "expected a tuple of 2"),
])
def test_bad_data(data, words):
    with pytest.raises(ValueError, match=words):
        Structure.from_data(data, "here")
