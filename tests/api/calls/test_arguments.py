"""Arguments of a call: binding, micro-batches, and what later calls must match."""

import re

import pytest
import torch

from poptorch._runtime.arguments import Arguments
from poptorch._translate import StepSpec
from poptorch.errors import Error


class Net(torch.nn.Module):
    def forward(self, x, scale=2.0, *more, extra=None, **others):
        return x


def arguments(*args, micro_batches=1, **kwargs):
    spec = StepSpec(training=False, device_iterations=micro_batches)
    return Arguments(Net(), args, kwargs, spec)


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


def test_a_plain_call_need_not_be_bound():
    x, y = torch.ones(2), torch.ones(2)
    compiled = arguments(x)
    assert compiled.match((y,), {}) == [y]
    for other in (torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.int64)):
        wide = arguments(other)
        assert wide.match((other,), {}) == [other]


def test_a_call_that_relies_on_defaults_which_the_first_one_did_not():
    x = torch.ones(2)
    with pytest.raises(Error, match="mismatch for scale: expected 3.0 but got 2.0"):
        arguments(x, 3.0).match((x,), {})
    with pytest.raises(Error, match="Type mismatch for extra"):
        arguments(x, extra=x).match((x,), {})


def test_too_many():
    words = "[arguments] got an unexpected keyword argument 'y': forward takes (input: " \
            "torch.Tensor) -> torch.Tensor, got 1 by position and ['y'] by name. Leave the others"
    with pytest.raises(Error, match=re.escape(words)):
        Arguments(torch.nn.ReLU(), (X,), {"y": X}, StepSpec(training=False))


def test_micro_batches_are_cut_from_the_first_dimension():
    x, extra = torch.arange(6.0), [torch.ones(3, 2)]
    compiled = arguments(x, extra=extra, micro_batches=3)
    args, kwargs = compiled.micro_batch((x,), {"extra": extra})
    assert torch.equal(args[0], torch.tensor([0.0, 1.0]))
    assert kwargs["extra"][0].shape == (1, 2)


X = torch.ones(2, 3)
MISMATCHES = [
    (dict(args=(torch.ones(2, 3, dtype=torch.int64),)),
     "x: expected torch.float32 but got torch.int64 (torch.int32 on the device)"),
    (dict(args=(torch.ones(2, 4),)),
     "x: expected torch.Size([2, 3]) but got torch.Size([2, 4])"),
    (dict(args=(X, 3.0)), "mismatch for scale: expected 2.0 but got 3.0"),
    (dict(args=(X,), extra=X), "Type mismatch for extra: expected <class 'NoneType'> but got"),
    (dict(args=(5,)), "Type mismatch for x: expected <class 'torch.Tensor'> but got <class 'int'>"),
    (dict(args=(X,), z=X), "Unexpected arguments: z."),
    (dict(args=(X, 2.0, X)),
     "Number of positional arguments mismatch: expected 2 arguments but got 3"),
    (dict(args=()), "Mandatory parameter x missing"),
    (dict(args=(torch.ones(2, 3, device="meta"),)),
     "[x] expected a tensor on the CPU but got one on meta"),
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
    with pytest.raises(Error, match=r"device_iterations \* replication_factor = 3 \* 1 = 3 "
                                    r"micro-batches of equal size, got torch.Size"):
        arguments(torch.ones(shape), micro_batches=3)


def test_the_formula_of_training_with_groups():
    spec = StepSpec(training=True, device_iterations=2, accumulation=3, replicas=4,
                    input_group_size=2)
    with pytest.raises(Error, match=re.escape(
            "device_iterations * gradient_accumulation * replication_factor / input_group_size = "
            "2 * 3 * 4 / 2 = 12 micro-batches")):
        Arguments(Net(), (torch.ones(10),), {}, spec)


@pytest.mark.parametrize(("keywords", "words"), [
    (dict(u=3, d={"v": X}), "mismatch for u: expected 5 but got 3"),
    (dict(u=X, d={"v": X}), "Type mismatch for u: expected <class 'int'>"),
    (dict(u=5, d={"v": X[:1]}), r"\] d.v: expected torch.Size"),
    (dict(u=5, d=[X]), "Type mismatch for d: expected"),
])
def test_keywords_are_named_as_the_caller_writes_them(keywords, words):
    compiled = arguments(X, u=5, d={"v": X})
    with pytest.raises(Error, match=words):
        compiled.match((X,), keywords)
