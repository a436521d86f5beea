"""Layers that change their mode after the module was wrapped: a warning, and the same program."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options

X = torch.arange(12.0).reshape(4, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn, self.drop, self.fc = nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 3)

    def forward(self, x):
        y = self.drop(self.bn(x))
        return y, poptorch.identity_loss(self.fc(y), "sum")


def wrap(net, training=False):
    function = poptorch.trainingModel if training else poptorch.inferenceModel
    return function(net, quiet_options())


def told(caplog):
    found = [record.getMessage() for record in caplog.records
             if not record.getMessage().startswith("[inferenceModel]")]
    caplog.clear()
    return found


def test_a_change_before_the_first_call(caplog):
    net = Net()
    model = wrap(net)
    net.eval()
    y = model(X)[0]
    assert (y == 0).any(), "dropout in training mode"
    assert told(caplog) == [
        "[train] BatchNorm1d bn (and 1 more) runs in training mode, for which it was compiled, "
        "and is in evaluation mode now: the compiled model computes as before. Call train() or "
        "eval() of the executor to change its mode."]
    model(X)
    assert not told(caplog), "once"
    again = wrap(net)
    assert torch.allclose(again(X)[0], net(X)[0]) and not told(caplog)


@pytest.mark.parametrize("name", ["bn", "drop"])
def test_a_layer_of_a_trained_module(name, caplog):
    net = Net()
    model = wrap(net, training=True)
    model(X)
    assert not told(caplog)
    getattr(net, name).eval()
    for _ in range(2):
        model(X)
    (found,) = told(caplog)
    kind = type(getattr(net, name)).__name__
    assert found.startswith(f"[train] {kind} {name} runs in training mode, for which it was "
                            f"compiled, and is in evaluation mode now: ")
    assert net.bn.num_batches_tracked == 3
    model.destroy()
    model = wrap(net, training=True)
    model(X), model(X)
    assert net.bn.num_batches_tracked == (3 if name == "bn" else 5) and not told(caplog)


@pytest.mark.parametrize("training", [False, True])
def test_the_executor_selects_a_program_of_its_mode(training, caplog):
    net = Net().train(training)
    model = wrap(net, training)
    model(X)
    for mode in (not training, training, not training):
        model.train(mode)
        y = model(X)[0]
        assert (y == 0).any() == mode and not told(caplog)
        if not mode and not training:
            torch.testing.assert_close(y, net.bn(X).detach())
    assert [program.reason for program in model.programs()] == [
        "the first call", f"self.bn.training changed from {training} to {not training}"]


def test_modes_that_do_not_matter(caplog):
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model = wrap(net)
    model(X)
    net.eval()
    model(X)
    assert not told(caplog), "no layer reads its mode"
    net = Net()
    model = wrap(net)
    model(X)
    net.eval(), net.train()
    model(X)
    net.fc.eval()
    model(X)
    assert not told(caplog)


def test_two_executors_switch_a_module_back_and_forth(caplog):
    net = Net()
    training, inference = wrap(net.train(), training=True), wrap(net.eval())
    for _ in range(2):
        training(X), inference(X)
        net.train()
        training(X), inference(X)
        net.eval()
    assert not told(caplog)
    inference.destroy()
    del inference
    training(X)
    (found,) = told(caplog)
    assert "runs in training mode" in found


def test_copies_and_files(tmp_path, caplog):
    net = Net()
    model = wrap(net)
    model(X)
    other, loaded = copy.deepcopy(model), poptorch.load(model.save(tmp_path / "a.poptorch"))
    other(X), loaded(X)
    assert not told(caplog)
    for executor in (other, loaded):
        executor.model.drop.eval()
        executor(X)
        assert "Dropout drop runs in training mode" in told(caplog)[0]


def test_inference_with_dropout_warns_once(caplog):
    def warnings(model):
        caplog.clear()
        for _ in range(2):
            model(X)
        return [record.getMessage() for record in caplog.records]

    assert warnings(wrap(Net())) == [
        "[inferenceModel] Dropout drop is in training mode and drops values. Call eval() on the "
        "executor to turn dropout off, or train() to keep it without this warning."]
    assert not warnings(wrap(Net()).train()) and not warnings(wrap(Net().eval()))
    assert not warnings(wrap(Net(), training=True))
    quiet = Net()
    quiet.drop.p = 0.0
    assert not warnings(wrap(quiet))
