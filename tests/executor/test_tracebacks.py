"""The frames that the user of an executor sees of an error."""

import traceback

import pytest
import torch

import poptorch
from poptorch._executor.tracebacks import SWITCH
from tests.helpers import quiet_options

X = torch.ones(3, 2)


def fail(x):
    raise ValueError("mine")


class Net(torch.nn.Module):
    """``function`` of a layer's result."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.function = torch.nn.Linear(2, 2), function

    def forward(self, x):
        return self.function(self.layer(x))


FAILURES = {
    "the user's own": (fail, ValueError, ["forward", "fail"]),
    "a value": (lambda x: x if x.sum() else x + 1, poptorch.Error, ["forward", "<lambda>"]),
    "a shape": (lambda x: x @ torch.ones(5, 5), poptorch.Error, []),
    "a type": (lambda x: x.to(torch.float8_e5m2), poptorch.Error, []),
}


def frames(error):
    return [frame for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename != __file__ or frame.name != "caught"]


def caught(call):
    with pytest.raises(Exception) as raised:
        call(X)
    return raised.value


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("way", ["call", "compile"])
def test_frames_of_the_user_remain(name, way, monkeypatch):
    function, kind, expected = FAILURES[name]

    def error():
        model = poptorch.inferenceModel(Net(function), quiet_options())
        return caught(model if way == "call" else model.compile)

    monkeypatch.delenv(SWITCH)
    short = error()
    assert isinstance(short, kind)
    assert [frame.name for frame in frames(short) if frame.filename == __file__] == expected
    ours = [frame for frame in frames(short) if "/poptorch/" in frame.filename]
    assert len(ours) <= 2, ours  # the method that was called
    if isinstance(short, poptorch.Error):
        assert len(frames(short)) == len(ours) + len(expected)
        assert short.__cause__ is None and short.__suppress_context__
    monkeypatch.setenv(SWITCH, "1")
    full = error()
    assert type(full) is type(short) and str(full).split("\n")[0] == str(short).split("\n")[0]
    assert len(frames(full)) > len(frames(short)) + 5


def test_arguments_that_do_not_fit(monkeypatch):
    monkeypatch.delenv(SWITCH)
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2), quiet_options())
    model(X)
    with pytest.raises(poptorch.Error, match="expected torch.Size") as raised:
        model(X[:1])
    assert len(frames(raised.value)) == 2  # this one, and __call__


def test_problems_inside_keep_all_frames(monkeypatch):
    monkeypatch.delenv(SWITCH)
    monkeypatch.setattr("poptorch._executor.translation.translate", int)
    error = caught(poptorch.inferenceModel(torch.nn.ReLU(), quiet_options()))
    assert isinstance(error, TypeError) and len(frames(error)) > 5
