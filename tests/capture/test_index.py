"""Indexing by integer tensors without dimensions, which torch turns into numbers."""

import pytest
import torch

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function, check_inference, check_training
from tests.helpers import quiet_options

X = torch.arange(24.0, dtype=torch.float64).reshape(2, 3, 4) - 11.5
READS = {
    "first": lambda x, i, j: x[i],
    "second": lambda x, i, j: x[:, i],
    "last": lambda x, i, j: x[..., i],
    "both": lambda x, i, j: x[i, :, i],
    "new": lambda x, i, j: x[None, i, 1:, None],
    "chained": lambda x, i, j: x[i][i],
    "after_list": lambda x, i, j: x[j, i],
    "before_list": lambda x, i, j: x[i, j],
    "all": lambda x, i, j: x[i, i, i],
}


@pytest.mark.parametrize("number", (0, 1, -1))
@pytest.mark.parametrize("name", READS)
def test_reads(name, number):
    def forward(m, x, i, j):
        y = READS[name](x * m.w, i, j)
        return y, poptorch.identity_loss(y * y, "sum")

    module = Function(forward, {"w": torch.linspace(1, 2, 4, dtype=torch.float64)})
    check_training(module, X, torch.tensor(number), torch.tensor([1, 0]))


def _first(x, i, y):
    x[i] = 2.5


def _second(x, i, y):
    x[:, i] = y[:, 0]


def _last(x, i, y):
    x[..., i] = x[..., i] + y.sum()


def _several(x, i, y):
    x[i, 1:, i] = y[0, :2, 0]


def _new(x, i, y):
    x[None, i, None, :2] = y[0, :2]


def _broadcast(x, i, y):
    x.transpose(0, 2)[1:, i] = y[None, 0, 0, :2]


@pytest.mark.parametrize("number", (0, 1, -1))
@pytest.mark.parametrize("write", (_first, _second, _last, _several, _new, _broadcast))
def test_writes(write, number):
    def forward(m, x, i):
        y = x * m.w
        z = y.clone()
        write(z, i, y)
        return z, poptorch.identity_loss(z * z, "sum")

    module = Function(forward, {"w": torch.linspace(1, 2, 4, dtype=torch.float64)})
    check_training(module, X, torch.tensor(number))


def _changed_view(m, x, i):
    y = x[i]
    y += 1
    return x


def _changed_part(m, x, i):
    x[i][1:].zero_()
    return x


def _changed_base(m, x, i):
    y = x[i]
    x.zero_()
    return y


def _read_after_base(m, x, i):
    y = x[:, i][i]
    x[0] = 1.0
    return y + 1


@pytest.mark.parametrize("forward", (_changed_view, _changed_part, _changed_base,
                                     _read_after_base))
def test_copies_are_not_taken_for_views(forward):
    with pytest.raises(poptorch.Error, match="(?s)a view in PyTorch and a copy .*test_index.py"):
        capture(Function(forward), (X, torch.tensor(1)), training=False)


def test_change_after_the_last_use():
    def forward(m, x, i):
        y = x[i] + 1
        z = x[i].clone()
        x.mul_(2)
        z += 1
        return y, z

    check_inference(Function(forward), X, torch.tensor(1))


def test_run():
    model = poptorch.inferenceModel(Function(lambda m, x, i: x[:, i]), quiet_options())
    for number in (0, 2, -1):
        assert torch.equal(model(X.float(), torch.tensor(number)), X.float()[:, number])
