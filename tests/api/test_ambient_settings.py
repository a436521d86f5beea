"""Settings around a call that are compiled in: a call within others is an error."""

import contextlib
import re

import pytest
import torch

import poptorch
from poptorch import Error
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


INSIDE = "Call it as it was compiled, or {}; or call destroy(), and the next call compiles anew."
AUTOCAST = INSIDE.format("use torch.autocast inside of forward")
CASES = {
    "on": (contextlib.nullcontext, autocast, "compiled without autocast and is called within an "
           f"autocast to torch.bfloat16. {AUTOCAST}"),
    "off": (autocast, contextlib.nullcontext, "compiled within an autocast to torch.bfloat16 and "
            "is called without autocast."),
    "another type": (autocast, lambda: autocast(torch.float16), "to torch.bfloat16 and is called "
                     "within an autocast to torch.float16."),
    "default dtype": (contextlib.nullcontext, lambda: default_dtype(torch.float64),
                      "compiled with the default dtype torch.float32 and is called with the "
                      "default dtype torch.float64. " +
                      INSIDE.format("name the dtype of each tensor that forward makes")),
}


@pytest.mark.parametrize("name", CASES)
def test_another_setting(name):
    first, then, words = CASES[name]
    model = poptorch.inferenceModel(Net(), quiet_options())
    with first():
        expected = model(X)
    with then(), pytest.raises(Error, match=r"^\[call\] the model was .*" +
                               re.escape(words)):
        model(X)
    with then():
        model.copyWeightsToDevice()
    with first():
        assert torch.equal(model(X), expected)
    model.destroy()
    with then():
        torch.testing.assert_close(model(X), model.model(X), rtol=0.02, atol=0.02,
                                   check_dtype=False)


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
    with pytest.raises(Error, match="within an autocast to torch.bfloat16 and is called without"):
        again(X)
    with autocast():
        assert torch.equal(again(X), expected)
