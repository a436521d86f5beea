"""The private parts of torch that the package stands on: a new torch fails here first, by name."""

import collections
import sys
from pathlib import Path

import pytest
import torch

from poptorch._base.torch_private import basic


def test_every_name_has_a_test():
    tested = Path(__file__).read_text()
    for name in vars(basic):
        if name == "torch" or name.startswith("_"):
            continue
        assert f"basic.{name}" in tested, f"torch_private.basic.{name} has no test"


def test_untraced():
    found = []

    def counted(graph, inputs):
        found.append(graph)
        return graph

    def inner(x):
        return inside(x) + 1

    def inside(x):
        return x.sin()

    x = torch.ones(2)
    torch.testing.assert_close(torch.compile(lambda x: inner(x) * 2, backend=counted)(x),
                               inner(x) * 2)
    assert len(found) == 1 and "sin" in found.pop().code
    basic.untraced(inner)
    torch.testing.assert_close(torch.compile(lambda x: inner(x) * 2, backend=counted)(x),
                               inner(x) * 2)
    assert found and all("sin" not in graph.code for graph in found)


def test_nested_values():
    point = collections.namedtuple("point", "x y")
    assert dict in basic.SUPPORTED_NODES and basic.is_namedtuple_class(point)
    assert not basic.is_constant_class(point)
    assert basic.pytree.tree_leaves({"a": [1, (2,)]}) == [1, 2]


def test_subclasses_of_tensors():
    class Counting(torch.Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls += 1
            return super().__torch_function__(func, types, args, kwargs)

    x = basic.make_subclass(Counting, torch.ones(2), False)
    for manager in (basic.plain_access, basic.without_torch_function):
        with manager():
            x + 1
    assert Counting.calls == 0
    x + 1
    assert Counting.calls == 1


def test_exceptions_of_workers():
    try:
        raise ValueError("in a worker")
    except ValueError as error:
        wrapped = basic.ExceptionWrapper((type(error), error, error.__traceback__), "here")
    with pytest.raises(ValueError, match="Caught ValueError here"):
        wrapped.reraise()


def test_loading_writes_from_one_function():
    callers = []

    class Seen(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.Tensor.copy_:
                callers.append(sys._getframe(1).f_code)
            return super().__torch_function__(func, types, args, kwargs)

    module = torch.nn.Linear(2, 1, bias=False)
    module.weight.__class__ = Seen
    module.load_state_dict({"weight": torch.ones(1, 2)})
    assert callers == [basic.load_code]


def test_is_all_true():
    # torch.distributions checks values by it.
    assert basic.is_all_true(torch.tensor([True, True])).item()
    assert not basic.is_all_true(torch.tensor([True, False])).item()
