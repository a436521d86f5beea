"""The form of data from files: what is accepted, and what is said of the rest."""

import pytest

from poptorch._base import schema


@pytest.mark.parametrize("value, form", [
    (3, int), (None, str | None), (False, bool), ([1, 2], [int]), ((1, "a"), (int, str)),
    ({"a": [1]}, {"a": [int]}), ({"x": 1, "y": 2}, {str: int}), ("sum", {"sum", "mean"}),
    ([], [int]), ({}, {str: int}),
])
def test_what_fits(value, form):
    schema.check(value, form, "it")


@pytest.mark.parametrize("value, form, words", [
    (True, int, "it is True, expected int"),
    ([1, "a"], [int], "it[1] is 'a', expected int"),
    ((1,), (int, int), "it is (1,), expected a tuple of 2"),
    ({"b": (1, True)}, {"b": (int, int)}, "it.b[1] is True, expected int"),
    ({1: 2}, {str: int}, "a key of it is 1, expected str"),
    ({"k": [{3: 1}]}, {"k": [{str: int}]}, "a key of it.k[0] is 3, expected str"),
    ({"x": {"y": [3.0]}}, {str: {"y": [int | None]}}, "it.x.y[0] is 3.0, expected int | None"),
    ({"a": 1}, {"a": int, "b": int}, "it is ['a'], expected the entries a, b"),
    ([], {"a": int}, "it is [], expected a dictionary"),
    ("max", {"sum", "mean"}, "it is 'max', expected one of mean, sum"),
])
def test_what_is_said(value, form, words):
    with pytest.raises(ValueError) as caught:
        schema.check(value, form, "it")
    assert str(caught.value) == words
