"""Training through indices and windows: native ops only, and the gradients of eager."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from tests.networks import harness
from tests.networks.zoo.base import Network, integers, sgd


class Indexed(nn.Module):
    """A call of two parameters and an index, with a loss that weighs each result differently."""

    def __init__(self, call, sizes):
        super().__init__()
        self.call = call
        self.tensors = nn.ParameterList(nn.Parameter(torch.randn(s)) for s in sizes)

    def forward(self, index):
        out = self.call(index, *self.tensors)
        weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape)
        return out, poptorch.identity_loss((out * out * weights).sum(), reduction="none")


def reduced(reduce, include_self):
    """Scatter along dim 0; with a zero in both tensors, which products divide by."""
    def call(index, x, src):
        hole = torch.arange(src.numel()).view(src.shape) == 3
        x, src = x.masked_fill(x > 1.5, 0.0), src.masked_fill(hole, 0.0)
        return x.scatter_reduce(0, index, src, reduce, include_self=include_self)
    return call


def tied(index, table, scores):
    """An embedding whose table is the output layer too."""
    return F.embedding(index, table, padding_idx=1) @ table.T + scores.sum()


MATRICES = [(6, 4), (9, 4)]  # tensor and source; the index is [9, 4] of 0 to 5
IMAGES = [(2, 3, 8, 9), (1, 1)]
CASES = {
    **{f"scatter_reduce {reduce} {include}": (reduced(reduce, include), MATRICES)
       for reduce in ("sum", "prod", "mean", "amax", "amin") for include in (True, False)},
    "index_add": (lambda i, x, s: x.index_add(0, i[:, 0], s, alpha=1.5) * x, MATRICES),
    "tied embedding": (tied, MATRICES),
    "adaptive_max_pool2d": (lambda i, x, s: F.adaptive_max_pool2d(x, (3, 4)) * s, IMAGES),
    "unfold": (lambda i, x, s: F.unfold(x, 3, padding=1, stride=2) * s, IMAGES),
    "fold": (lambda i, x, s: F.fold(x.flatten(2).unflatten(1, (3,)).flatten(0, 1), (9, 8), 1) * s,
             IMAGES),
    "fold of blocks": (lambda i, x, s: F.fold(x, (5, 6), (2, 3)) * s, [(2, 12, 16), (1, 1)]),
}


@pytest.mark.parametrize("name", CASES)
def test_training(name, seed):
    call, sizes = CASES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network(Indexed(call, sizes), lambda g: (integers(g, 6, 9, 4),), sgd())
    harness.check_training_wide(network, seed, steps=2)
    model = poptorch.trainingModel(network.module, harness.options_for(network),
                                   network.make_optimizer(list(network.module.parameters())))
    model.compile(*network.batches(1, seed)[0])
    opaque = [op for ops in model.op_report().values() for op in ops if "aten" in op]
    assert not opaque
