"""The documented names with their arguments, in order, and defaults; enumerations with members."""

import inspect

import pytest
import torch

import poptorch
from tests.api.names.documented import FUNCTIONS, MEMBERS, PROPERTIES, find


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_and_defaults(name):
    owner, last = find(name)
    thing = getattr(owner, last)
    wanted = inspect.signature(eval(f"lambda {FUNCTIONS[name]}: None", dict(vars(poptorch))))
    found = [p for p in inspect.signature(thing).parameters.values() if p.name != "self"]
    assert [(p.name, p.kind, p.default) for p in found] == \
        [(p.name, p.kind, p.default) for p in wanted.parameters.values()]


@pytest.mark.parametrize("name", PROPERTIES)
def test_properties(name):
    owner, last = find(name)
    assert isinstance(inspect.getattr_static(owner, last), property)


# That other versions do not have.
ADDED_MEMBERS = {"ConnectionType": {"PreCompile"}}


@pytest.mark.parametrize("name", MEMBERS)
def test_members(name):
    assert {member.name for member in getattr(poptorch, name)} == \
        {*MEMBERS[name].split(), *ADDED_MEMBERS.get(name, ())}


def test_replica_grouping_of_a_parameter():
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2))
    names = list(inspect.signature(model.weight.replicaGrouping).parameters)
    assert names == ["comm_group_type", "shards", "variable_retrieval_mode"]
