"""Settings around a call that are compiled in: a call within others compiles again."""

import contextlib

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

X = torch.ones(2, 3)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x) + torch.ones(3)


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(before)


def autocast(dtype=torch.bfloat16, enabled=True):
    return torch.autocast("cpu", dtype=dtype, enabled=enabled)


CASES = {
    "on": (contextlib.nullcontext, autocast, "autocast changed from off to torch.bfloat16"),
    "off": (autocast, contextlib.nullcontext, "autocast changed from torch.bfloat16 to off"),
    "another type": (autocast, lambda: autocast(torch.float16),
                     "autocast changed from torch.bfloat16 to torch.float16"),
    "default dtype": (contextlib.nullcontext, lambda: default_dtype(torch.float64),
                      "the default dtype changed from torch.float32 to torch.float64"),
}


@pytest.mark.parametrize("name", CASES)
def test_another_setting_compiles_again(name):
    first, then, words = CASES[name]
    model = poptorch.inferenceModel(Net(), quiet_options())
    with first():
        expected = model(X)
    with then():
        torch.testing.assert_close(model(X), model.model(X), rtol=0.02, atol=0.02,
                                   check_dtype=False)
        model.copyWeightsToDevice()
    with first():
        assert torch.equal(model(X), expected)
    assert [program.reason for program in model.programs()] == ["the first call", words]


def test_the_same_in_other_words():
    model = poptorch.inferenceModel(Net(), quiet_options())
    model(X)
    with autocast(enabled=False), default_dtype(torch.float32):
        model(X)
    model.destroy()
    with autocast():
        model(X)
        with autocast(torch.bfloat16):
            model(X)


def test_of_a_program_from_a_file(tmp_path):
    net = Net()
    model = poptorch.inferenceModel(net, quiet_options())
    with autocast():
        expected = model(X)
    path = model.save(tmp_path / "net.poptorch", export_model=False)
    again = poptorch.inferenceModel(net, quiet_options())
    again.loadExecutable(path)
    torch.testing.assert_close(again(X), net(X).detach())
    with autocast():
        assert torch.equal(again(X), expected)
    assert len(again.programs()) == 2
