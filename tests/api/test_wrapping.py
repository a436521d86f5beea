"""Wrapped modules as objects: modes, copies and pickles of executors."""

import copy
import io
import pickle

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

X, T = torch.arange(6.0).reshape(2, 3), torch.ones(2, 2)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)

    def forward(self, x, target=None):
        y = self.fc(x)
        if not self.training:
            return y
        return y, torch.nn.functional.mse_loss(y, target)


def test_the_mode_is_that_of_the_wrapping(caplog):
    net = Net()
    training = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 0.1))
    net.eval()
    inference = poptorch.inferenceModel(net, quiet_options())
    net.train()
    assert inference(X).shape == (2, 2)
    net.eval()
    assert len(training(X, T)) == 2
    assert not net.training and not net.fc.training
    assert not caplog.records, "the mode is one that the other was wrapped in"


def test_the_executors_mode_selects_the_branch():
    net = Net()
    model = poptorch.inferenceModel(net, quiet_options())
    assert model.eval() is model and not net.training
    assert model(X).shape == (2, 2)
    model.destroy()
    model.train()
    assert len(model(X, T)) == 2


def saved_and_loaded(model):
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda model: pickle.loads(pickle.dumps(model)),
          "torch.save": saved_and_loaded}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("is_compiled", [False, True])
def test_copies_of_executors(copied, is_compiled):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    if is_compiled:
        model(X, T)
    other = copied(model)
    assert type(other) is poptorch.PoplarExecutor and not other.isCompiled()
    assert other.model is not net and type(other.model).__mro__[1] is Net
    assert torch.equal(other.fc.weight, net.fc.weight)
    for _ in range(2):
        assert torch.equal(other(X, T)[1], model(X, T)[1])
    assert torch.equal(other.fc.weight, net.fc.weight)
    model(X, T)
    assert not torch.equal(other.fc.weight, net.fc.weight)


def test_copies_of_inference_executors():
    net = Net().eval()
    model = poptorch.inferenceModel(net, quiet_options(deviceIterations=2))
    y = model(X)
    other = copy.deepcopy(model)
    net.train()
    assert torch.equal(other(X), y)
    assert other.options.device_iterations == 2


class Subclass(poptorch.PoplarExecutor):
    pass


def test_subclasses_are_copied_as_such():
    model = Subclass(model=Net().eval(), training=False, options=quiet_options(), optimizer=None,
                     user_model=None, poptorch_version=poptorch.__version__)
    other = copy.deepcopy(model)
    assert type(other) is Subclass and torch.equal(other(X), model(X))


def test_an_executor_is_used_as_a_module():
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    model = poptorch.inferenceModel(net, quiet_options())
    assert dict(model.named_parameters()).keys() == dict(net.named_parameters()).keys()
    assert list(model.modules()) == list(net.modules())
    assert sum(p.numel() for p in model.parameters()) == 8
    assert "Linear(in_features=3" in repr(model)


def test_the_module_is_watched_again_after_destroy():
    class Counting(torch.nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls.add_(1.0)
            return poptorch.identity_loss(super().forward(x), "sum")

    options = poptorch.Options().showCompilationProgressBar(False)
    model = poptorch.trainingModel(Counting(), options)
    model.destroy()
    model(torch.ones(1, 2))
    assert model.model.calls == 1
    model(torch.ones(1, 2))
    copied = copy.deepcopy(model)
    assert copied.state_dict()["calls"] == 2
    assert torch.equal(copied.state_dict()["weight"], model.state_dict()["weight"])


@pytest.mark.parametrize("wrap", [poptorch.trainingModel, poptorch.inferenceModel])
@pytest.mark.parametrize("model, words", [
    (None, "NoneType. Pass an object of the module's class."),
    (torch.nn.Linear, "the class Linear. Pass an object: Linear(...)."),
    ("net.pt", "str. Pass an object of the module's class.")])
def test_only_modules_are_wrapped(wrap, model, words):
    with pytest.raises(TypeError) as raised:
        wrap(model)
    assert str(raised.value) == f"[{wrap.__name__}] model must be a torch.nn.Module, got {words}"


def test_misspelt_members_get_a_suggestion():
    model = poptorch.inferenceModel(Net())
    with pytest.raises(AttributeError, match="'compileAndExprt'. Did you mean compileAndExport?"):
        model.compileAndExprt("net.poptorch", X)
    with pytest.raises(AttributeError, match="no attribute 'nothing_like_it'$"):
        model.nothing_like_it


@pytest.mark.parametrize("options, words", [
    ({"deviceIterations": 2}, "got dict. Pass poptorch.Options.fromDict(...)."),
    ({}, "got dict. Pass"), ([], "got list. Pass poptorch.Options() with"),
    (2, "got int. Pass"), (torch.optim.SGD, "got type. Pass"),
    (torch.optim.SGD(Net().parameters()), "got SGD. Pass the optimizer as optimizer=."),
])
@pytest.mark.parametrize("where", ["trainingModel", "inferenceModel", "DataLoader"])
def test_options_of_another_class(options, words, where):
    with pytest.raises(TypeError) as raised:
        if where == "DataLoader":
            poptorch.DataLoader(options, torch.utils.data.TensorDataset(X))
        else:
            getattr(poptorch, where)(Net(), options)
    assert f"[{where}] options must be a poptorch.Options, {words}" in str(raised.value)
