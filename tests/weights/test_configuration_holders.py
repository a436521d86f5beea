"""Holders of configuration other than dictionaries, lists and objects: a change is an error."""

from collections import ChainMap, UserDict, UserList
from configparser import ConfigParser
from types import MappingProxyType

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options


class Table(dict):
    """A container that has attributes, too."""

    scale: float


def _parser():
    made = ConfigParser()
    made.read_dict({"a": {"scale": "2.0"}})
    return made


def _table():
    made = Table()
    made.scale = 2.0
    return made


_BEHIND = {"scale": 2.0}
HOLDERS = {
    "user dict": (UserDict(scale=2.0), lambda c: c["scale"], lambda c: c.update(scale=3.0),
                  ".data['scale']"),
    "user list": (UserList([2.0]), lambda c: c[0], lambda c: c.__setitem__(0, 3.0), ".data[0]"),
    "chain": (ChainMap({}, {"scale": 2.0}), lambda c: c["scale"],
              lambda c: c.maps[1].update(scale=3.0), ".maps[1]['scale']"),
    "read-only": (MappingProxyType(_BEHIND), lambda c: c["scale"],
                  lambda c: _BEHIND.update(scale=3.0), "['scale']"),
    "view": ({"a": [2.0]}.values(), lambda c: next(iter(c))[0],
             lambda c: next(iter(c)).__setitem__(0, 3.0), "[0][0]"),
    "parser": (_parser(), lambda c: c.getfloat("a", "scale"),
               lambda c: c.set("a", "scale", "3.0"), "._sections['a']['scale']"),
    "section": (_parser()["a"], lambda c: float(c["scale"]),
                lambda c: c.__setitem__("scale", "3.0"), "._parser._sections['a']['scale']"),
    "dictionary with attributes": (_table(), lambda c: c.scale,
                                   lambda c: setattr(c, "scale", 3.0), ".scale"),
    "in another one": ([_table(), {"k": _table()}], lambda c: c[1]["k"].scale,
                       lambda c: setattr(c[1]["k"], "scale", 3.0), "[1]['k'].scale"),
}


class Holding(nn.Module):
    def __init__(self, held, read):
        super().__init__()
        self.held, self.read, self.calls = held, read, UserDict(count=0)

    def forward(self, x):
        self.calls["count"] += 1
        return x * self.read(self.held)


@pytest.mark.parametrize("kind", HOLDERS)
def test_what_holds_configuration(kind):
    held, read, change, path = HOLDERS[kind]
    net, x = Holding(held, read), torch.ones(2)
    model = poptorch.inferenceModel(net, quiet_options())
    assert model(x).tolist() == model(x).tolist() == [2, 2]
    net.calls["count"] = 7  # forward changes it itself
    model(x)
    change(held)
    assert model(x).tolist() == [3, 3]
    was, now = ("'2.0'", "'3.0'") if "_sections" in path else (2.0, 3.0)
    assert f"self.held{path} changed from {was} to {now}" in model.programs()[-1].reason
