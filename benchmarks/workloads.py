"""What is measured: one row a workload."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from benchmarks import networks


@dataclass(frozen=True)
class Workload:
    """A network with its inputs and optimizer."""

    name: str
    network: Callable[[], nn.Module]
    inputs: Callable[[int], tuple]  # for a batch of the given size
    batch: int
    optimizer: str = "sgd"
    device_iterations: int = 1
    in_quick: bool = True  # small enough for --quick


def images(channels, size, classes):
    """Inputs of an image classifier."""

    def make(batch):
        x = torch.randn(batch, channels, size, size)
        return x, torch.randint(0, classes, (batch,))

    return make


def tokens(words, length):
    """Inputs of a language model."""

    def make(batch):
        shape = (batch, length)
        return torch.randint(0, words, shape), torch.randint(0, words, shape)

    return make


def vectors(*shape):
    """Inputs of a classifier of ten classes."""
    return lambda batch: (torch.randn(batch, *shape), torch.randint(0, 10, (batch,)))


WORKLOADS = [
    Workload("mlp", networks.mlp, vectors(64), 16),
    Workload("mlp-x100", networks.mlp, vectors(64), 16, device_iterations=100),
    Workload("convnet", networks.digits_convnet, images(1, 28, 10), 64),
    Workload("lstm", networks.Lstm, vectors(64, 128), 32, "adamw"),
    Workload("resnet18", lambda: networks.resnet(18), images(3, 224, 1000), 8),
    Workload("resnet50", lambda: networks.resnet(50), images(3, 224, 1000), 4, in_quick=False),
    Workload("bert-2-layers", lambda: networks.bert(2), tokens(30522, 128), 4, "adamw"),
    Workload("bert", lambda: networks.bert(12), tokens(30522, 128), 4, "adamw", in_quick=False),
    Workload("gpt2-2-layers", lambda: networks.gpt2(2), tokens(50257, 256), 1, "adamw"),
    Workload("gpt2", lambda: networks.gpt2(12), tokens(50257, 256), 1, "adamw", in_quick=False),
]
# The full run measures the whole networks instead of these.
ONLY_QUICK = {"bert-2-layers", "gpt2-2-layers"}


def find(name):
    """The workload of that name."""
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    names = ", ".join(workload.name for workload in WORKLOADS)
    raise SystemExit(f"[benchmarks] no workload {name!r}. There are: {names}.")


def make_optimizer(workload, parameters, fused=None):
    """The workload's optimizer, a plain one of torch.optim."""
    if workload.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-4, fused=fused)
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, fused=fused)
