"""Weights in safetensors files."""

import os

import pytest
import safetensors.torch
import torch

import poptorch
from tests.helpers import quiet_options


class Net(torch.nn.Module):
    """Tied weights, a transposed one, a buffer of integers, a name that the format reserves."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.again = torch.nn.Linear(4, 4)
        self.again.weight = self.fc.weight
        self.turned = torch.nn.Parameter(torch.randn(3, 4).t())
        self.register_buffer("count", torch.arange(3))

    def forward(self, x):
        return poptorch.identity_loss(self.again(self.fc(x)) @ self.turned, "mean")


def same(ours, theirs):
    ours, theirs = ours.state_dict(), theirs.state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in ours.items())


def test_there_and_back(tmp_path):
    net, other = Net(), Net()
    path = poptorch.save_weights(net, tmp_path / "net.safetensors")
    found = safetensors.torch.load_file(path)
    assert found.keys() == net.state_dict().keys()
    assert poptorch.load_weights(other, path).missing_keys == []
    assert same(net, other) and other.again.weight is other.fc.weight
    assert os.listdir(tmp_path) == ["net.safetensors"]


def test_executors(tmp_path):
    net, x = Net(), torch.randn(5, 4)
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.1))
    model(x)
    path = poptorch.save_weights(model, tmp_path / "net.safetensors")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    loss = model(x)
    poptorch.load_weights(model, path)
    assert torch.equal(model(x), loss)  # the device has them again
    poptorch.load_weights(model, path)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_files_of_other_libraries(tmp_path):
    """They leave out all names of a tensor but one."""
    net, other = Net(), Net()
    state = {name: value.contiguous() for name, value in net.state_dict().items()}
    del state["fc.weight"]
    state["fc.bias"] = state["fc.bias"].half()
    safetensors.torch.save_file(state, tmp_path / "net.safetensors", {"format": "pt"})
    poptorch.load_weights(other, tmp_path / "net.safetensors")
    assert torch.equal(other.fc.weight, net.fc.weight)
    assert torch.equal(other.fc.bias, net.fc.bias.half().float())


def test_errors(tmp_path):
    path = poptorch.save_weights(torch.nn.Linear(4, 2), tmp_path / "net")
    with pytest.raises(RuntimeError, match=r"size mismatch for weight.*\[2, 4\].*\[3, 4\]"):
        poptorch.load_weights(torch.nn.Linear(4, 3), path)
    with pytest.raises(RuntimeError, match="Unexpected key.*bias"):
        poptorch.load_weights(torch.nn.Linear(4, 2, bias=False), path)
    found = poptorch.load_weights(torch.nn.Linear(4, 2, bias=False), path, strict=False)
    assert found.unexpected_keys == ["bias"]
    (tmp_path / "bad").write_bytes(b"hello")
    for name in ("bad", "absent"):
        with pytest.raises(poptorch.Error, match=r"^\[load_weights\] cannot read .*Pass a safete"):
            poptorch.load_weights(torch.nn.Linear(4, 2), tmp_path / name)
    with pytest.raises(poptorch.Error, match=r"^\[save_weights\] cannot write .*Check the path"):
        poptorch.save_weights(torch.nn.Linear(4, 2), tmp_path / "no" / "net")

    with pytest.raises(TypeError, match=r"^\[save_weights\] model must be .*Module, got dict"):
        poptorch.save_weights({}, tmp_path / "net")
    with pytest.raises(TypeError, match=r"^\[load_weights\] model must be .*Module, got dict"):
        poptorch.load_weights({}, path)

    class Extra(torch.nn.Module):
        def get_extra_state(self):
            return {"a": 1}

    with pytest.raises(poptorch.Error, match=r"^\[save_weights\] _extra_state is dict .*Save"):
        poptorch.save_weights(Extra(), tmp_path / "net")
