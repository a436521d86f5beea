"""Former values, compared with the present ones."""

from array import array
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from types import SimpleNamespace

import numpy
import pytest
import torch

from poptorch._base.value_snapshot import Objects, Snapshot, objects_within, same

X, Y = torch.ones(2), torch.zeros(2)


class Part:
    def __init__(self, scale=1.0):
        self.scale = scale

    def scaled(self, x):
        return x * self.scale


class Slots:
    __slots__ = ("items",)

    def __init__(self, items):
        self.items = items


class Named:
    """Equal to all objects of its name, whatever else they have."""

    def __init__(self, name, scale):
        self.name, self.scale = name, scale

    def __eq__(self, other):
        return self.name == other.name

    def __hash__(self):
        return hash(self.name)


@pytest.mark.parametrize("a, b, is_same", [
    (0.0, -0.0, False), (float("nan"), float("nan"), True), (1, 1, True), (X, Y, False),
    (complex(0, -0.0), 0j, False), (Decimal("0"), Decimal("-0"), False),
    (Decimal("1.0"), Decimal("1.00"), False), (Decimal("1.5"), Decimal("1.5"), True),
    (numpy.float32(0.0), numpy.float32(-0.0), False), (range(0, 3, 2), range(0, 4, 2), False),
    (range(3), range(3), True), (datetime(2000, 1, 1, 1, tzinfo=UTC), datetime(
        2000, 1, 1, 2, tzinfo=timezone(timedelta(hours=1))), False)])
def test_same(a, b, is_same):
    assert same(a, b) is is_same


@pytest.mark.parametrize("a, b", [(range(0, 3, 2), range(0, 4, 2)), (0.0, -0.0),
                                  (Decimal("0"), Decimal("-0"))])
def test_what_is_equal_and_not_the_same(a, b):
    for objects in Objects:
        assert Snapshot([a], objects).difference([b], "f") == ("f[0]", repr(a), repr(b))


CHANGES = {
    "partial": (lambda: partial(torch.add, alpha=2.0), lambda f: f.keywords.update(alpha=3.0),
                ("f.keywords['alpha']", "2.0", "3.0")),
    "method": (lambda: [Part().scaled], lambda f: f.__setitem__(0, Part(2.0).scaled),
               ("f[0].__self__", "<", "<")),
    "bytearray": (lambda: bytearray(b"a"), lambda f: f.append(98),
                  ("f", "bytearray(b'a')", "bytearray(b'ab')")),
    "array": (lambda: [array("d", [1.0])], lambda f: f[0].append(2.0),
              ("f[0]", "array('d', [1.0])", "array('d', [1.0, 2.0])")),
    "array of NumPy": (lambda: [numpy.ones((1, 2))], lambda f: f[0].fill(2),
                       ("f[0]", "array([[1., 1.]])", "array([[2., 2.]])")),
    "shape of an array": (lambda: [numpy.ones((1, 2))], lambda f: f.__setitem__(0, f[0].T),
                          ("f[0]", "array([[1., 1.]])", "array([[1.],")),
    "slots": (lambda: Slots([1]), lambda f: f.items.append(2), ("f.items", "[1]", "[1, 2]")),
    "slot that is not set": (lambda: Slots([1]), lambda f: delattr(f, "items"), ("f", "<", "<")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_gone_through(name):
    make, change, (path, was, now) = CHANGES[name]
    value = make()
    snapshot = Snapshot(value)
    assert snapshot.difference(value, "f") is None
    change(value)
    found = snapshot.difference(value, "f")
    assert found[0] == path and found[1].startswith(was) and found[2].startswith(now)


@pytest.mark.parametrize("value, text", [
    ([bytearray(b"a")], "[bytearray(b'a')]"), ([array("d", [1.0])], "[array('d', [1.0])]"),
    (SimpleNamespace(f=partial(int, base=2)), "namespace(f=functools.partial(<class 'int'>, "
                                              "base=2))")])
def test_text(value, text):
    assert Snapshot(value).text() == text


def test_objects_behind_functions():
    part = Part()
    found = dict(objects_within([partial(part.scaled, 1)], "fs"))
    assert found["fs[0].func.__self__"] is part


def test_sets_of_equal_things():
    value = {(1, 2), (3, 4), Named("a", 1.0)}
    equal = {Named("a", 1.0), *(tuple(pair) for pair in ([3, 4], [1, 2]))}
    assert Snapshot(value, Objects.EQUAL).difference(equal, "") is None
    assert Snapshot(value, Objects.EQUAL).difference({(1, 2.0), (3, 4)}, "kinds")[0] == "kinds"


def test_objects_that_are_equal():
    one, other = Named("a", 1.0), Named("a", 2.0)
    snapshot = Snapshot(one, Objects.EQUAL)
    assert snapshot.difference(other, "c") == ("c.scale", "1.0", "2.0")
    assert snapshot.difference(Named("a", 1.0), "c") is None
    assert snapshot.difference(Named("b", 1.0), "c")[0] == "c"
    one.scale = 3.0
    assert snapshot.difference(one, "c") is None  # what is read of the object itself is known
    assert Snapshot(Part(), Objects.EQUAL).difference(Part(), "c")[0] == "c"
    assert Snapshot(one).difference(Named("a", 3.0), "c")[0] == "c"


def test_objects_that_are_alike():
    snapshot = Snapshot([Part(), X, SimpleNamespace(t=Part(X))], Objects.ALIKE)
    assert snapshot.difference([Part(), Y, SimpleNamespace(t=Part(Y))], "c") is None
    assert snapshot.difference([Part(2.0), Y, SimpleNamespace(t=Part(Y))], "c") \
        == ("c[0].scale", "1.0", "2.0")


def test_an_object_that_holds_itself():
    def make(scale):
        part = Part(scale)
        part.self = part
        return part

    assert Snapshot(make(1.0), Objects.ALIKE).difference(make(2.0), "c")[0] == "c.scale"


@pytest.mark.parametrize("value, change, was, now", [
    (memoryview(bytearray(b"ab")), lambda held: held.__setitem__(0, 99), "b'ab'", "b'cb'"),
    (memoryview(bytearray(b"abc"))[::2], lambda held: held.__setitem__(1, 99), "b'ac'", "b'ac'"),
    (numpy.zeros(1, [("a", "i4")]), lambda held: held["a"].fill(1),
     "array([(0,)], dtype=[('a', '<i4')])", "array([(1,)], dtype=[('a', '<i4')])")])
def test_memory_that_is_changed(value, change, was, now):
    snapshot = Snapshot(value)
    assert snapshot.difference(value, "a") is None and not snapshot.is_quick
    change(value)
    found = snapshot.difference(value, "a")
    assert found == (None if was == now else ("a", was, now))
    assert snapshot.change("a") == (found and (*found, False))


@pytest.mark.parametrize("value, change, found", [
    ([1, 2], lambda held: held.append(3), None), ({"a": 1}, lambda held: held.update(b=2), None),
    ({1}, lambda held: held.add(2), None), ([[1]], lambda held: held[0].append(2), None),
    ([1, 2], lambda held: held.pop(), ("a", "[1, 2]", "[1]", True)),
    ({"k": [1]}, lambda held: held["k"].__setitem__(0, 2), ("a['k'][0]", "1", "2", False)),
    ({"k": 1}, lambda held: held.clear(), ("a['k']", "1", "nothing", True)),
    ({1}, lambda held: held.clear(), ("a[1]", "1", "nothing", True)),
    (Slots([1]), lambda held: setattr(held, "items", 2), ("a.items", "[1]", "2", False)),
    (Counter("a"), lambda held: held.update("b"),
     ("a", "{'a': 1}", "Counter({'a': 1, 'b': 1})", False)),
    ([X], lambda held: held.__setitem__(0, Y), None)])
def test_what_is_counted(value, change, found):
    snapshot = Snapshot(value)
    assert snapshot.change("a") is None
    change(value)
    assert snapshot.change("a") == found
