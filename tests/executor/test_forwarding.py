"""Members of a part as members of the object that has the part."""

import inspect

import pytest
import torch

import poptorch
from poptorch._executor.forwarding import forward_property, forward_to
from poptorch.errors import Error
from tests.helpers import quiet_options


class Part:
    def __init__(self):
        self._count = 0

    def add(self, number: int, *, times: int = 1) -> "Part":
        """Adds a number."""
        self._count += number * times
        return self

    def text(self) -> str:
        return str(self._count)

    @property
    def count(self) -> int:
        """The sum."""
        return self._count

    @count.setter
    def count(self, value: int) -> None:
        self._count = value

    @property
    def is_zero(self) -> bool:
        return self._count == 0


class Owner:
    add = forward_to("_part", Part.add)
    text = forward_to("_part", Part.text)
    count = forward_property("_part", Part.count)
    is_zero = forward_property("_part", Part.is_zero)

    def __init__(self):
        self._part = Part()


def test_methods_and_properties():
    owner = Owner()
    assert owner.add(2, times=3) is owner, "a part that returns itself stands for its owner"
    assert (owner.count, owner.text(), owner.is_zero) == (6, "6", False)
    owner.count = 0
    assert owner.is_zero
    with pytest.raises(AttributeError):
        owner.is_zero = True


def test_what_help_shows():
    assert inspect.signature(Owner.add) == inspect.signature(Part.add)
    assert (Owner.add.__doc__, Owner.count.__doc__) == ("Adds a number.", "The sum.")


def test_subclasses_and_objects_replace_members():
    class Louder(Owner):
        def text(self):
            return super().text() + "!"

    owner = Louder()
    assert owner.text() == "0!"
    owner.text = lambda: "mine"
    assert owner.text() == "mine"


def test_a_wrapped_model_is_not_moved():
    net = torch.nn.Linear(2, 2)
    model = poptorch.inferenceModel(net, quiet_options())
    for move in (lambda: model.cuda(), lambda: model.to("cuda"), lambda: model.to("cuda:1"),
                 lambda: model.to(device=torch.device("cuda"))):
        with pytest.raises(Error, match=r"it cannot be moved to cuda.*Remove the call"):
            move()
    assert model.to("cpu") is net and model.to(torch.device("cpu")).weight.device.type == "cpu"
    assert model.to(torch.float16).weight.dtype is torch.float16
