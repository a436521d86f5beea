"""Python code reads the values of tensors that are computed from constants alone."""

import pytest
import torch

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function, check_inference

X = torch.arange(8.0).reshape(2, 4) - 1


def _lengths(x):
    length = torch.full((2,), x.shape[1]).sum() // 4
    return (x.narrow(1, length - 1, 2), torch.narrow(x, dim=1, start=length, length=1),
            torch.narrow(x, 1, 0, length))


def _write(x):
    x = x.clone()
    x[:torch.tensor(x.shape[0]) - 1] = 3
    return x


READS = {
    "item": lambda x: x * torch.arange(x.shape[1]).expand(2, 4).max().item(),
    "if": lambda x: x + 1 if torch.arange(x.shape[1])[-1] > 2 else x,
    "range": lambda x: torch.stack([x * i for i in range(torch.arange(4).max())]),
    "equal": lambda x: x + 1 if torch.equal(torch.arange(2), torch.tensor([0, 1])) else x,
    "tolist": lambda x: x.split(torch.arange(1, 3).add(torch.tensor([0, 1])).tolist(), 1),
    "slice": lambda x: x[:, 2 - torch.tensor(min(x.shape[0], 2)):1 + torch.tensor(1)],
    "slice written": _write,
    "narrow": _lengths,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_values_that_are_known(read):
    check_inference(Function(lambda m, x: read(x)), X)


def _changed_by_a_view(x):
    length = torch.zeros(3, dtype=torch.long)
    last = length[1]
    length.fill_(x.shape[0])
    return x[:, :last]


def _changed_by_the_input(x):
    total = torch.zeros(())
    total += x.sum()
    return x.tolist() if total > 0 else x


REFUSED = {
    "input": lambda x: x + 1 if x.sum() > 0 else x,
    "random": lambda x: x + 1 if torch.rand([]) > 0 else x,
    "bound": lambda x: x[:, :x.argmax()],
    "narrow": lambda x: x.narrow(1, x.argmax() - 1, 1),
    "changed by the input": _changed_by_the_input,
    "changed by a view": _changed_by_a_view,
}


@pytest.mark.parametrize("read", REFUSED.values(), ids=REFUSED)
def test_values_that_are_not_known(read):
    with pytest.raises(poptorch.Error, match="forward is compiled before there are values"):
        capture(Function(lambda m, x: read(x)), (X,), training=False)
