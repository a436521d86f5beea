"""What is measured: one row a workload."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

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
    has_images: bool = False  # so that PyTorch may be faster with channels last
    in_quick: bool = False  # small enough for --quick
    is_large: bool = False  # a step takes a good part of a second


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


def rows(width):
    """Inputs and targets of a network that keeps the shape."""
    return lambda batch: (torch.randn(batch, width), torch.randn(batch, width))


_digits, _photos = images(1, 28, 10), images(3, 224, 1000)
_bert, _gpt2 = tokens(30522, 128), tokens(50257, 256)
_frames = vectors(64, 128)

WORKLOADS = [
    Workload("mlp", networks.mlp, vectors(64), 16, in_quick=True),
    Workload("mlp-x100", networks.mlp, vectors(64), 16, device_iterations=100),
    Workload("mlp-x1000", networks.mlp, vectors(64), 16, device_iterations=1000),
    Workload("convnet", networks.digits_convnet, _digits, 64, has_images=True, in_quick=True),
    Workload("lstm", partial(networks.Recurrent, nn.LSTM), _frames, 32, "adamw", in_quick=True),
    Workload("gru", partial(networks.Recurrent, nn.GRU), _frames, 32, "adamw"),
    Workload(
        "elementwise", partial(networks.Elementwise, 8, 768), rows(768), 2048, in_quick=True
    ),
    Workload("resnet18", partial(networks.resnet, 18), _photos, 8, has_images=True),
    Workload(
        "resnet50", partial(networks.resnet, 50), _photos, 4, has_images=True, is_large=True
    ),
    Workload("depthwise", networks.depthwise, images(32, 56, 10), 8, has_images=True),
    Workload("bert-2-layers", partial(networks.bert, 2), _bert, 4, "adamw", in_quick=True),
    Workload("bert", partial(networks.bert, 12), _bert, 4, "adamw", is_large=True),
    Workload("vit", partial(networks.vit, 12), _photos, 4, "adamw"),
    Workload("gpt2-2-layers", partial(networks.gpt2, 2), _gpt2, 1, "adamw"),
    Workload("gpt2", partial(networks.gpt2, 12), _gpt2, 1, "adamw", is_large=True),
]
# Narrow transformers, to see how the time of the first call grows with the number of layers.
DEPTHS = (12, 24, 48, 96)
WORKLOADS_BY_DEPTH = [
    Workload(f"narrow-{n}", partial(networks.narrow, n), tokens(512, 32), 2) for n in DEPTHS
]
# Many parameters and little to compute, to see what looking at each of them in each call takes.
OF_100_PARAMETERS = Workload("linears", partial(networks.linears, 50), vectors(8), 4, "adamw")
# One request of a server.
SERVED = [
    Workload("served-mlp", networks.mlp, vectors(64), 1),
    Workload("served-convnet", networks.digits_convnet, _digits, 1, has_images=True),
    Workload("served-bert", partial(networks.text_classifier, 2), tokens(30522, 32), 1),
]
# The network of another workload, several iterations a call.
IN_LOOPS = {workload.name for workload in WORKLOADS if workload.device_iterations > 1}
# The full run measures whole networks instead of these.
NOT_IN_FULL = {"bert-2-layers", "gpt2-2-layers", "depthwise"}
# Inputs and batch with which the whole network makes twenty steps in every variant within minutes.
SMALLER = {
    "resnet18": (images(3, 112, 1000), 8),
    "resnet50": (images(3, 112, 1000), 4),
    "bert": (tokens(30522, 64), 1),
    "gpt2": (tokens(50257, 64), 1),
}


def find(name):
    """The workload of that name."""
    for workload in [*WORKLOADS, *WORKLOADS_BY_DEPTH, OF_100_PARAMETERS, *SERVED]:
        if workload.name == name:
            return workload
    names = ", ".join(workload.name for workload in WORKLOADS)
    raise SystemExit(f"[benchmarks] no workload {name!r}. There are: {names}.")


def smaller(workload):
    """The same network with less to do."""
    inputs, batch = SMALLER.get(workload.name, (workload.inputs, workload.batch))
    return replace(workload, inputs=inputs, batch=batch)


# A step changes the weights by next to nothing. Thousands of steps on one batch would otherwise
# learn it by heart, and the gradients become denormal numbers, which slow PyTorch's matrix products
# down up to ten times: the comparison would flatter us.
LEARNING_RATE = 1e-7
TRUE_LEARNING_RATE = {"adamw": 1e-4, "sgd": 1e-3}  # where learning is what is measured


def make_optimizer(workload, parameters, fused=None, learning_rate=LEARNING_RATE):
    """The workload's optimizer, a plain one of torch.optim."""
    if workload.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=learning_rate, fused=fused)
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=0.9, fused=fused)
