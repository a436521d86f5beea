"""Typical mistakes: their errors are short, and show the frames of the user's program only."""

import re
import traceback

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from tests.helpers import quiet_options

X, TARGET = torch.linspace(-1, 1, 32).view(8, 4), torch.arange(8) % 3
CRITERION = nn.CrossEntropyLoss()


class Net(nn.Module):
    """A linear layer; ``function`` computes the result from it and the argument."""

    def __init__(self, function=None):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.function = function

    def forward(self, x):
        return self.fc(x) if self.function is None else self.function(self.fc, x)


def infer(*args, function=None):
    return poptorch.inferenceModel(Net(function), quiet_options())(*args)


def train(*args, function=None, optimizer=torch.optim.Adam, loss=CRITERION):
    net = Net(function)
    made = optimizer(net.parameters())
    return poptorch.trainingModel(net, quiet_options(), made, loss=loss)(*args)


def call_twice(first, second):
    model = poptorch.inferenceModel(Net(), quiet_options())
    model(*first)
    model(*second)


def train_twice(first, second):
    net = Net()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.Adam(net.parameters()),
                                   loss=CRITERION)
    model(*first)
    model(*second)


# What the user does, and what the message says.
MISTAKES = {
    "shape": (lambda: infer(X[:, :3]), "mat1 and mat2 shapes cannot be multiplied"),
    "shape of the target": (lambda: train(X, TARGET[:5]), "Expected input batch_size"),
    "shape in forward": (lambda: infer(X, function=lambda fc, x: fc(x) + x),
                         "The size of tensor a"),
    "dtype": (lambda: infer(X.long()), "must have the same dtype, but got Long and Float"),
    "dtype of the target": (lambda: train(X, TARGET.float()), "expected target dtype to be Long"),
    "class": (lambda: train(X, TARGET + 3), "is not a class: there are 3"),
    "item": (lambda: infer(X, function=lambda fc, x: fc(x) * x.mean().item()),
             "needs the value of a tensor"),
    "if": (lambda: infer(X, function=lambda fc, x: x if x.sum() > 0 else -x),
           "needs the value of a tensor"),
    "mask": (lambda: infer(X, function=lambda fc, x: x[x > 0]), "depends on the values"),
    "numpy argument": (lambda: infer(X.numpy()), "Pass torch.from_numpy"),
    "numpy in forward": (lambda: infer(X, function=lambda fc, x: torch.from_numpy(
        numpy.exp(x.numpy()))), "Tensor.numpy()"),
    "optimizer without a rule": (lambda: train(X, TARGET, optimizer=torch.optim.LBFGS),
                                 "has no update on the device"),
    "optimizer of another model": (lambda: train(
        X, TARGET, optimizer=lambda _: torch.optim.Adam(Net().parameters())),
        "nothing would be trained"),
    "class of an optimizer": (lambda: train(X, TARGET, optimizer=lambda _: torch.optim.Adam),
                              "got the class Adam"),
    "cuda in forward": (lambda: infer(X, function=lambda fc, x: fc(x.cuda())),
                        "Remove torch.Tensor.cuda(float32[8, 4]): poptorch moves tensors"),
    "device in forward": (lambda: infer(X, function=lambda fc, x: fc(x.to("cuda"))),
                          "Remove torch.Tensor.to(float32[8, 4], 'cuda'): poptorch moves"),
    "changed batch size": (lambda: call_twice([X], [X[:5]]), "drop_last=True"),
    "changed batch size in training": (lambda: train_twice([X, TARGET], [X[:5], TARGET[:5]]),
                                       "Options.recompilation(shapes=True)"),
    "changed dtype": (lambda: call_twice([X], [X.half()]), "expected torch.float32 but got"),
    "batch that does not divide": (lambda: poptorch.inferenceModel(
        Net(), quiet_options().deviceIterations(3))(X), "Pass a multiple of 3"),
    "missing target": (lambda: train(X), "the last positional argument of a call is the target"),
    "missing target later": (lambda: train_twice([X, TARGET], [X]),
                             "expected 2 arguments but got 1"),
    "missing loss": (lambda: train(X, loss=None), "Pass loss= to poptorch.trainingModel"),
    "loss of several numbers": (lambda: train(X, TARGET, loss=lambda out, target: F.cross_entropy(
        out, target, reduction="none")), "Reduce the loss"),
    "loss that is a class": (lambda: train(X, TARGET, loss=nn.CrossEntropyLoss),
                             "Pass an object"),
    "arguments in the wrong order": (lambda: poptorch.trainingModel(Net(), CRITERION),
                                     "options must be a poptorch.Options"),
    "class of a module": (lambda: poptorch.inferenceModel(Net), "must be a torch.nn.Module"),
}


def _frames(error, folder):
    return [frame for frame in traceback.extract_tb(error.__traceback__)
            if f"/{folder}/" in frame.filename]


def _sentences(text):
    return re.split(r"[.?!](?= [A-Z(`]|\n)", text.partition("\n  at ")[0])


@pytest.mark.parametrize("name", MISTAKES)
def test_errors_are_short(name, monkeypatch):
    monkeypatch.delenv("POPTORCH_DEBUG")
    make, words = MISTAKES[name]
    with pytest.raises(Exception) as caught:
        make()
    error, text = caught.value, str(caught.value)
    assert words in text
    assert len(_sentences(text)) <= 3, text
    assert len(_frames(error, "poptorch")) <= 3 and not _frames(error, "torch")
    assert error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)


def test_debugging_shows_all_frames(monkeypatch):
    monkeypatch.setenv("POPTORCH_DEBUG", "1")
    with pytest.raises(poptorch.Error) as caught:
        MISTAKES["item"][0]()
    assert len(_frames(caught.value, "poptorch")) >= 15
