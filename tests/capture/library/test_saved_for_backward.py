"""What is changed in place after an operation keeps its value in that operation's gradient."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from tests.capture.common import Function, check_training
from tests.capture.graph_text import text

F64 = torch.float64


def _recurrent(kind):
    layer = kind(4, 4, dtype=F64)

    def run(layer, x, h):
        y, state = layer(x, (h, h) if kind is nn.LSTM else h)
        return y, state[0] if kind is nn.LSTM else state

    return layer, run


def _norm(training: bool):
    layer = nn.BatchNorm1d(3, dtype=F64).train(training)
    return layer, lambda layer, x, h: (layer(x),)


def _attention(layer, x, h):
    return (F.scaled_dot_product_attention(x, x * 2, x),)


def _bag(layer, x, h):
    return (F.embedding_bag(torch.tensor([[0, 1], [2, 0]]), x[0], mode="sum",
                            per_sample_weights=x[1, :2, :2]),)


def _ctc(layer, x, h):
    return (F.ctc_loss(x.log_softmax(-1), torch.tensor([[1, 2], [2, 3], [1, 3]]),
                       torch.full((3,), 5), torch.full((3,), 2), reduction="none"),)


OPERATIONS = {
    "gru": lambda: _recurrent(nn.GRU),
    "lstm": lambda: _recurrent(nn.LSTM),
    "rnn": lambda: _recurrent(nn.RNN),
    "batch_norm": lambda: _norm(True),
    "batch_norm_inference": lambda: _norm(False),
    "attention": lambda: (nn.Identity(), _attention),
    "embedding_bag": lambda: (nn.Identity(), _bag),
    "ctc_loss": lambda: (nn.Identity(), _ctc),
}


class _Changes(nn.Module):
    """Changes what an operation was applied to, or what it gave; eager applies it to copies."""

    def __init__(self, layer, run, place):
        super().__init__()
        self.layer, self.run, self.place = layer, run, place
        self.w = nn.Parameter(torch.linspace(0.5, 1.5, 60, dtype=F64).reshape(5, 3, 4))

    def forward(self, x):
        x = x * self.w
        h = x[:1] * 0.5
        own = (lambda t: t) if poptorch.isRunningOnIpu() else torch.clone
        results = [own(result) for result in self.run(self.layer, own(x), own(h))]
        if self.place == "operand":
            x *= 3.0
            x[1:] += 1.0
        else:
            results[0][:1] *= 2.0
        loss = sum(result.sin().sum() for result in (x, *results))
        return x, poptorch.identity_loss(loss, "sum")


@pytest.mark.parametrize("place", ("operand", "result"))
@pytest.mark.parametrize("name", OPERATIONS)
def test_changed_afterwards(name, place):
    layer, run = OPERATIONS[name]()
    x = torch.randn(5, 3, 4, dtype=F64)
    captured = check_training(_Changes(layer, run, place), x)
    assert any(spec.kind == "grad" for spec in captured.outputs)


def test_nothing_is_copied_without_need():
    def forward(m, x):
        y, _ = m.layer(x * m.w)
        return y, poptorch.identity_loss(y, "sum")

    module = Function(forward, {"w": torch.ones(4, dtype=F64)})
    module.layer = nn.GRU(4, 4, dtype=F64)
    assert "clone" not in text(check_training(module, torch.randn(5, 3, 4, dtype=F64)))
