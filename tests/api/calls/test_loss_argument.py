"""``poptorch.trainingModel(..., loss=criterion)``: the last positional argument is the target."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.helpers import quiet_options

X, TARGET = torch.arange(64.0).sin().view(16, 4), torch.arange(16) % 3


class Net(torch.nn.Module):
    """Its child is named like the loss."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.loss = torch.nn.Linear(3, 3)

    def forward(self, x, scale=1.0):
        hidden = self.fc(x) * scale
        return hidden, self.loss(hidden)


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1)


def test_it_trains_as_pytorch_does(seed):
    net = torch.nn.Linear(4, 3)
    expected = copy.deepcopy(net)
    criterion = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))
    model = poptorch.trainingModel(net, quiet_options(), sgd(net), loss=criterion)
    optimizer = sgd(expected)
    for _ in range(3):
        out, loss = model(X, TARGET)
        optimizer.zero_grad()
        own = expected(X)
        own_loss = criterion(own, TARGET)
        own_loss.backward()
        optimizer.step()
        torch.testing.assert_close(out, own.detach())
        torch.testing.assert_close(loss, own_loss.detach())
    torch.testing.assert_close(net.weight, expected.weight)


def test_names_are_those_of_the_module():
    net = Net()
    model = poptorch.trainingModel(net, quiet_options(), sgd(net), loss=lambda out, target:
                                   F.cross_entropy(out[1], target))
    before = list(net.state_dict())
    (hidden, scores), loss = model(X, TARGET, scale=2.0)
    assert hidden.shape == scores.shape == (16, 3) and loss.shape == ()
    assert list(model.state_dict()) == list(net.state_dict()) == before
    assert {"fc.weight", "loss.bias", "Gradient___fc.weight"} <= set(model.getTensorNames())
    assert model.model is net and model.fc is net.fc


@pytest.mark.parametrize("kind", ["mean", "sum"])
def test_micro_batches_of_a_call(seed, kind):
    net = torch.nn.Linear(4, 3)
    opts = quiet_options().deviceIterations(2).replicationFactor(2)
    opts.Training.gradientAccumulation(2)
    opts.Training.accumulationAndReplicationReductionType(
        poptorch.ReductionType.Mean if kind == "mean" else poptorch.ReductionType.Sum)
    expected = copy.deepcopy(net)
    criterion = torch.nn.CrossEntropyLoss(reduction=kind)
    model = poptorch.trainingModel(net, opts.outputMode(poptorch.OutputMode.All), sgd(net),
                                   loss=criterion)
    out, loss = model(X, TARGET)
    assert out.shape == (16, 3) and loss.shape == (8,)
    optimizer = sgd(expected)
    for x, target in zip(X.split(8), TARGET.split(8)):
        optimizer.zero_grad()
        criterion(expected(x), target).backward()
        optimizer.step()
    torch.testing.assert_close(net.weight, expected.weight)


def test_modes_copies_and_files(tmp_path, seed):
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5))
    model = poptorch.trainingModel(net, quiet_options(), sgd(net), loss=torch.nn.CrossEntropyLoss())
    model.eval()
    first = model(X, TARGET)[1]
    assert not net[1].training
    path = model.compileAndExport(str(tmp_path / "net.poptorch"), X, TARGET)
    copied, loaded = pickle.loads(pickle.dumps(model)), poptorch.load(path)
    losses = [each(X, TARGET)[1] for each in (model, copied, loaded)]
    assert losses[0] == losses[1] == losses[2] < first


def test_structured_targets():
    net = torch.nn.Linear(4, 3)
    model = poptorch.trainingModel(net, quiet_options(), sgd(net), loss=lambda out, target:
                                   F.mse_loss(out, target["y"]) * target["weight"])
    out, loss = model(X, {"y": torch.zeros(16, 3), "weight": torch.tensor([2.0])})
    torch.testing.assert_close(loss.reshape(()), 2 * out.square().mean())


def refused(match, kind=poptorch.Error, net=None, loss=torch.nn.CrossEntropyLoss(),
            args=(X, TARGET), **named):
    with pytest.raises(kind, match=match):
        poptorch.trainingModel(net or torch.nn.Linear(4, 3), quiet_options(), loss=loss)(
            *args, **named)


def test_errors():
    refused("loss must be a function of the output and the target, got float", TypeError, loss=1.0)
    refused(r"got the class CrossEntropyLoss. Pass an object: CrossEntropyLoss\(\)", TypeError,
            loss=torch.nn.CrossEntropyLoss)
    refused("loss has the parameter weight, which requires grad", loss=torch.nn.Linear(3, 1))
    refused(r"expected one number from loss=, got a tensor of shape \[16\]",
            loss=torch.nn.CrossEntropyLoss(reduction="none"))
    refused("expected one number from loss=, got an object of tuple",
            loss=lambda out, target: (out.mean(), target))
    refused("the last positional argument of a call is the target, and forward of Linear takes the "
            "others: missing a required argument: 'input'. Got 1 positional", args=(X,))
    refused("unexpected keyword argument 'target'", args=(X, TARGET), target=TARGET)
    refused(r"too many positional arguments: forward takes \(input: torch.Tensor\) -> torch.Tensor"
            r", got 2 by position and \[\] by name. If one is a target, wrap the model with loss=",
            loss=None)
    refused("model must be a torch.nn.Module, got function", TypeError, net=lambda x: x)
