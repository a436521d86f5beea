"""Arguments of a call: binding, micro-batches, and what later calls must match."""

import re

import pytest
import torch

from poptorch._executor.arguments import Arguments
from poptorch.errors import Error


class Net(torch.nn.Module):
    def forward(self, x, scale=2.0, *more, extra=None, **others):
        return x


def arguments(*args, micro_batches=1, **kwargs):
    return Arguments(Net(), args, kwargs, micro_batches)


def test_tensors_in_order_of_the_signature():
    a, b, c = torch.ones(2), torch.zeros(3), torch.ones(4)
    compiled = arguments(a, 2.0, b, extra={"k": [c, 5]})
    assert [leaf.path for leaf in compiled.leaves] == ["x", "scale", "more.0", "extra.k.0",
                                                       "extra.k.1"]
    got = compiled.match((a, 2.0, b), {"extra": {"k": [c, 5]}})
    assert [t is u for t, u in zip(got, (a, b, c))] == [True] * 3


def test_omitted_default_is_the_default():
    x = torch.ones(2)
    assert arguments(x).match((x, 2.0), {}) == [x]


def test_micro_batches_are_cut_from_the_first_dimension():
    compiled = arguments(torch.arange(6.0), extra=[torch.ones(3, 2)], micro_batches=3)
    assert torch.equal(compiled.micro_args[0], torch.tensor([0.0, 1.0]))
    assert compiled.micro_kwargs["extra"][0].shape == (1, 2)


X = torch.ones(2, 3)
MISMATCHES = [
    (dict(args=(torch.ones(2, 3, dtype=torch.int64),)),
     "x: expected torch.float32 but got torch.int32"),
    (dict(args=(torch.ones(2, 4),)),
     "x: expected torch.Size([2, 3]) but got torch.Size([2, 4])"),
    (dict(args=(X, 3.0)), "mismatch for scale: expected 2.0 but got 3.0"),
    (dict(args=(X,), extra=X), "Type mismatch for extra: expected <class 'NoneType'> but got"),
    (dict(args=(5,)), "Type mismatch for x: expected <class 'torch.Tensor'> but got <class 'int'>"),
    (dict(args=(X,), z=X), "Unexpected arguments: z."),
    (dict(args=(X, 2.0, X)), "Number of items in more mismatch: expected 0"),
    (dict(args=()), "Mandatory parameter x missing"),
    (dict(args=(torch.ones(2, 3, device="meta"),)),
     "x: expected a tensor on the CPU but got one on meta"),
]


@pytest.mark.parametrize(("call", "words"), MISMATCHES, ids=[w[:40] for _, w in MISMATCHES])
def test_later_call_that_differs(call, words):
    compiled = arguments(X)
    call = dict(call)
    args = call.pop("args")
    with pytest.raises(Error, match=re.escape(words)):
        compiled.match(args, call)
    assert compiled.match((X,), {}) == [X]


def test_missing_keys():
    compiled = arguments(X, first=X, second=X)
    with pytest.raises(Error, match="Missing arguments: second."):
        compiled.match((X,), {"first": X})


def test_key_order_is_free():
    a, b = torch.ones(1), torch.zeros(1)
    compiled = arguments(X, first=a, second=b)
    got = compiled.match((X,), {"second": b, "first": a})
    assert [t is u for t, u in zip(got, (X, a, b))] == [True] * 3


@pytest.mark.parametrize("shape", [(), (4,)])
def test_batch_that_cannot_be_cut(shape):
    with pytest.raises(Error, match=r"= 3 micro-batches of equal size, got torch.Size"):
        arguments(torch.ones(shape), micro_batches=3)
