"""What a compiled model leaves behind when it is destroyed: nothing."""

import gc
import re
import weakref
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from poptorch._base.torch_private import fake_tensors
from poptorch._capture import capturing
from tests.helpers import quiet_options


class Net(nn.Module):
    """Views, recurrent layers, batch norm, checkpoints, and gradients of functions of our own."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)
        self.cell, self.last = nn.GRU(6, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x, target):
        hidden = self.norm(self.first(x)).reshape(-1, 2, 6)
        hidden = torch.utils.checkpoint.checkpoint(self._middle, hidden, use_reentrant=False)
        out = self.last(hidden).permute(1, 0, 2).log_softmax(-1)
        lengths = torch.full((2,), len(out)), torch.full((2,), 2)
        first = F.ctc_loss(out.transpose(0, 1)[:, :2], target, *lengths)
        return out, poptorch.identity_loss(first + F.mse_loss(out, out.detach()), "sum")

    def _middle(self, hidden):
        hidden = F.dropout(self.cell(hidden)[0].clone(), 0.5)
        hidden[0] += 1
        return hidden + F.scaled_dot_product_attention(hidden, hidden, hidden)


class WithLoss(nn.Module):
    def forward(self, x):
        return poptorch.identity_loss(x, "sum")


ARGUMENTS = torch.ones(4, 4), torch.tensor([[1, 2], [2, 1]])


def compile_and_destroy(training):
    net = Net()
    if training:
        model = poptorch.trainingModel(net, quiet_options(), torch.optim.Adam(net.parameters()))
    else:
        model = poptorch.inferenceModel(net, quiet_options())
    model(*ARGUMENTS)
    model.destroy()


@pytest.fixture
def no_collection():
    """Python's garbage collector does not run; what is done once in a process has been done."""
    compile_and_destroy(training=False)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("destroys", [False, True])
def test_a_module_does_not_wait_for_the_garbage_collector(training, destroys, no_collection):
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    if training:
        net.append(WithLoss())
        model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 0.1))
    else:
        model = poptorch.inferenceModel(net, quiet_options())
    model(torch.ones(2, 4))
    if destroys:
        model.destroy()
    gone = weakref.ref(net), weakref.ref(model)
    del net, model
    assert [one() for one in gone] == [None, None]


def count_fakes() -> int:
    gc.collect()
    return sum(type(one) is fake_tensors.FakeTensor for one in gc.get_objects())


@pytest.mark.sampled
@pytest.mark.parametrize("training", [False, True])
def test_nothing_of_a_capture_is_left(training, monkeypatch):
    made, begin = [], capturing._Capture.__init__

    def noted(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        made.extend(map(weakref.ref, (self, self.recorder, self.recorder.graph, self.fake_mode)))

    monkeypatch.setattr(capturing._Capture, "__init__", noted)
    before = count_fakes()
    compile_and_destroy(training)
    gc.collect()
    assert len(made) == 4 and [one() for one in made] == [None] * 4
    assert count_fakes() == before


def resident_bytes() -> int:
    gc.collect()
    (number,) = re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(number) * 1024


def tiny():
    net = nn.Linear(4, 2)
    model = poptorch.inferenceModel(net, quiet_options())
    model(torch.ones(3, 4))
    model.destroy()


@pytest.mark.slow
def test_memory_after_many_compilations():
    for _ in range(100):
        tiny()
    before = resident_bytes()
    for _ in range(900):
        tiny()
    assert resident_bytes() - before < 10 << 20
