"""CPU: a function that changes its arguments in place is an error, however it does so."""

import pytest
import torch

import poptorch
from tests.helpers import quiet_options


class Calls(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.host = poptorch.CPU(function, "f")

    def forward(self, x):
        return self.host(x)


def _written_by_numpy(x):
    x.numpy()[0] += 7
    return x * 2


def _written_beside_autograd(x):
    x.data.add_(1)
    return x * 2


@pytest.mark.parametrize("function", [_written_by_numpy, _written_beside_autograd])
def test_changes_of_arguments_that_leave_no_version(function):
    """They are seen while the model is compiled."""
    model = poptorch.inferenceModel(Calls(function), quiet_options())
    with pytest.raises(poptorch.Error, match=r"\[CPU\] 'f' changes its argument number 0 in place"):
        model.compile(torch.zeros(2))


@pytest.mark.parametrize("change", [_written_by_numpy, _written_beside_autograd,
                                    lambda x: x.mul_(3)])
def test_arguments_that_are_changed_in_some_calls(change):
    def sometimes(x):
        return change(x) if x.sum().item() > 0 else x * 2

    model = poptorch.inferenceModel(Calls(sometimes), quiet_options())
    for _ in range(2):
        assert model(torch.zeros(2)).tolist() == [0, 0]
        with pytest.raises(poptorch.Error, match=r"\[CPU\] 'f' changes its argument number 0 in "
                                                 r"place, which would have no effect\. Change a "):
            model(torch.ones(2))


def test_copies_of_arguments_may_be_changed():
    def on_a_copy(x):
        y = x.clone()
        y.data.add_(1)
        y.numpy()[0] += 7
        return y

    model = poptorch.inferenceModel(Calls(on_a_copy), quiet_options())
    assert [model(torch.full((2,), value)).tolist() for value in (0.0, 1.0)] == [[8, 1], [9, 2]]
