"""Modules whose weights are computed from others: torch.nn.utils.parametrizations."""

import copy

import pytest
import torch
from torch.nn.utils import parametrizations

import poptorch
from tests.helpers import quiet_options

NORMS = {"weight_norm": parametrizations.weight_norm,
         "spectral_norm": parametrizations.spectral_norm,
         "orthogonal": parametrizations.orthogonal}


class Net(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.fc1 = NORMS[norm](torch.nn.Linear(4, 5))
        self.fc2 = torch.nn.Linear(5, 3)

    def forward(self, x, target=None):
        y = self.fc2(torch.tanh(self.fc1(x)))
        return y if target is None else (y, torch.nn.functional.cross_entropy(y, target))


def batch(dtype=torch.float32):
    return torch.randn(6, 4, dtype=dtype), torch.randint(0, 3, (6,))


@pytest.mark.parametrize("norm", NORMS)
def test_training_equals_eager(norm):
    net = Net(norm).double()
    eager = copy.deepcopy(net)
    settings = {"lr": 0.1, "momentum": 0.5}
    reference = torch.optim.SGD(eager.parameters(), **settings)
    with poptorch.testing.wide():
        model = poptorch.trainingModel(net, quiet_options(),
                                       poptorch.optim.SGD(net.parameters(), **settings))
        for _ in range(3):
            data = batch(torch.float64)
            _, loss = model(*data)
            reference.zero_grad()
            expected = eager(*data)[1]
            expected.backward()
            reference.step()
            torch.testing.assert_close(loss, expected.detach(), rtol=1e-9, atol=1e-12)
        for (name, ours), theirs in zip(net.named_parameters(), eager.parameters()):
            torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9, msg=name)


@pytest.mark.parametrize("norm", NORMS)
def test_a_file_holds_the_module(norm, tmp_path):
    net = Net(norm)
    model = poptorch.trainingModel(
        net, quiet_options(), poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5))
    model(*batch())
    again = poptorch.load(model.save(tmp_path / "net.poptorch"))
    for _ in range(2):
        data = batch()
        assert all(torch.equal(a, b) for a, b in zip(model(*data), again(*data)))
    x, _ = batch()
    loaded = again.model.eval()
    for ours, theirs in zip(loaded.parameters(), net.parameters()):
        assert torch.equal(ours, theirs)
    assert torch.equal(loaded(x), net.eval()(x))  # on the CPU
    assert torch.equal(copy.deepcopy(loaded)(x), loaded(x))
    torch.nn.utils.parametrize.remove_parametrizations(loaded.fc1, "weight")
    assert isinstance(loaded.fc1.weight, torch.nn.Parameter)


def test_a_parametrized_module_itself(tmp_path):
    class_of = torch.nn.Linear
    layer = parametrizations.weight_norm(class_of(4, 5)).eval()
    model = poptorch.inferenceModel(layer, quiet_options())
    x, _ = batch()
    again = poptorch.load(model.compileAndExport(tmp_path / "layer.poptorch", x))
    assert torch.equal(model(x), again(x)) and isinstance(again.model, class_of)
    assert torch.equal(again.model.weight, layer.weight)
