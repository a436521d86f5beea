"""Operations whose results torch's rules for fake tensors do not tell rightly."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.capture.common import Function
from tests.helpers import quiet_options

DTYPES = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64)


def check(function, *inputs):
    expected = function(*inputs)
    with poptorch.testing.wide():
        model = poptorch.inferenceModel(Function(lambda m, *x: function(*x)), quiet_options())
        found = model(*inputs)
    model.destroy()
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), inputs
    assert torch.equal(found, expected), inputs


@pytest.mark.sampled
@pytest.mark.parametrize("default", (torch.float32, torch.float64))
@pytest.mark.parametrize("first", DTYPES)
def test_ldexp(first, default):
    torch.set_default_dtype(default)
    try:
        for second, sizes in itertools.product(DTYPES, ((2,), ())):
            if not (first.is_floating_point and second is torch.bool):  # eager does not have it
                check(torch.ldexp, torch.ones(2).to(first), torch.ones(sizes).to(second))
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("reduction", ("none", "mean", "sum"))
@pytest.mark.parametrize("sizes", ((), (3,), (1, 3), (2, 3)))
def test_multilabel_margin_loss(sizes, reduction):
    target = torch.zeros(sizes, dtype=torch.int64)
    if sizes:
        target[..., 1:] = -1
    check(lambda x, y: F.multilabel_margin_loss(x, y, reduction=reduction), torch.rand(sizes),
          target)


@pytest.mark.parametrize("reduction", ("none", "mean", "sum"))
@pytest.mark.parametrize("sizes", ((4,), (1, 4), (3, 4)))
def test_multi_margin_loss(sizes, reduction):
    check(lambda x, y: F.multi_margin_loss(x, y, reduction=reduction), torch.rand(sizes),
          torch.ones(sizes[:-1], dtype=torch.int64))


@pytest.mark.parametrize("second", (torch.uint8, torch.int64, torch.int32))
def test_shifts_of_truths(second):
    truths, counts = torch.tensor([True, False, True]), torch.tensor([1, 2, 0]).to(second)
    check(lambda x, y: x << y, truths, counts)
    check(lambda x, y: x >> y, truths, counts)
    check(lambda x: x << 2, truths)


def test_margin_loss_of_nan():
    x = torch.tensor([[1.0, torch.nan, 2.0], [0.5, 0.0, 1.0]])
    check(lambda x: F.multi_margin_loss(x, torch.tensor([0, 2]), reduction="none"), x)
    check(lambda x: F.multi_margin_loss(x, torch.tensor([1, 2]), p=2), x)
