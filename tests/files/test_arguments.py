"""Non-tensor arguments: a file has the values that were compiled in."""

from types import SimpleNamespace

import pytest
import torch

import poptorch
from tests.helpers import quiet_options as options

X = torch.ones(1)


class Count(torch.nn.Module):
    def forward(self, x, values):
        return x + len(values)


class Rows(dict):
    """A dictionary with an attribute."""


class Scale(torch.nn.Module):
    def forward(self, x, space):
        return x * space.scale[0]


def test_a_set_that_is_changed_later(tmp_path):
    values, model = {1}, poptorch.inferenceModel(Count(), options())
    model.compile(X, values)
    values.add(2)
    again = poptorch.load(model.save(tmp_path / "net.poptorch"))
    for one in (model, again):
        assert one(X, {1}).item() == 2
        with pytest.raises(poptorch.Error, match=r"mismatch for values: expected \{1\} but got "):
            one(X, values)


def rows():
    made = Rows(x=X)
    made.scale = [2.0]
    return made


@pytest.mark.parametrize(("make", "words"), [
    (lambda: SimpleNamespace(scale=[2.0]), r"space.scale\[0\]"),
    (rows, r"scale\[0\] of a Rows among the arguments")])
def test_an_object_that_is_changed_later_is_not_saved(make, words, tmp_path):
    space, model = make(), poptorch.inferenceModel(Scale(), options())
    model.compile(X, space)
    space.scale[0] = 3.0
    with pytest.raises(poptorch.Error, match=(
            rf"^\[save\] {words} changed from 2.0 to 3.0 after ")):
        model.save(tmp_path / "net.poptorch", export_model=False)
    space.scale[0] = 2.0
    assert model(X, space).item() == 2


class Only:
    """A class with one object, as a value that stands for none is made."""

    def __reduce__(self):
        return "ONLY"


ONLY = Only()


class Picked(torch.nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index

    def forward(self, x, index):
        return x[self.index][index]


@pytest.mark.parametrize("own, given", [
    ((..., 0), ...), (slice(0, 2), (slice(None), ..., 1)), (range(1, 3), range(2)),
    (..., range(0))])
def test_dots_and_ranges(own, given, tmp_path):
    x = torch.arange(12.0).reshape(3, 4)
    model = poptorch.inferenceModel(Picked(own), options())
    expected = model(x, given)
    assert torch.equal(expected, x[own][given])
    again = poptorch.load(model.save(tmp_path / "net.poptorch"))
    assert again.model.index == own and type(again.model.index) is type(own)
    assert torch.equal(again(x, given), expected)
    with pytest.raises(poptorch.Error, match="mismatch for index"):
        again(x, 1)


def test_an_object_that_has_a_name_in_its_module(tmp_path):
    model = poptorch.inferenceModel(Count(), options())
    model.compile(X, {1: ONLY})
    with pytest.raises(poptorch.Error, match=r"\[save\] .*cannot be put into a file: it stands for "
                                             r"what a module has under the name ONLY"):
        model.save(tmp_path / "net.poptorch")
