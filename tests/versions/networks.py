"""Programs of native operations that other releases of torch and Python load: :data:`PROGRAMS`."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options
from tests.own_step import zoo


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(),
                                    nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 4))

    def forward(self, x):
        return self.layers(x)


class Words(nn.Module):
    """Takes int64, which the device has narrower; returns a dictionary."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(30, 16), nn.LayerNorm(16)
        self.keys, self.out = nn.Linear(16, 48), nn.Linear(16, 5)

    def forward(self, numbers):
        x = self.norm(self.table(numbers))
        q, k, v = self.keys(x).chunk(3, -1)
        x = x + torch.softmax(q @ k.transpose(1, 2) / 4, -1) @ v
        return {"scores": self.out(x), "best": self.out(x).argmax(-1)}


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.inner(x)[0])


class Trained(nn.Module):
    """Draws random numbers, changes buffers and has a loss."""

    def __init__(self):
        super().__init__()
        self.hidden, self.norm = nn.Linear(6, 16), nn.BatchNorm1d(16)
        self.drop, self.out = nn.Dropout(0.3), nn.Linear(16, 3)

    def forward(self, x, label):
        scores = self.out(self.drop(torch.relu(self.norm(self.hidden(x)))))
        return scores, nn.functional.cross_entropy(scores, label)


@dataclass(frozen=True)
class Program:
    """A network, a function that makes its inputs, and one that makes the optimizer."""

    network: type[nn.Module]
    inputs: Callable[[], tuple]
    optimizer: Callable | None = None

    def executor(self) -> poptorch.PoplarExecutor:
        net = self.network()
        options = quiet_options().randomSeed(7)
        if self.optimizer is None:
            return poptorch.inferenceModel(net.eval(), options)
        return poptorch.trainingModel(net, options, self.optimizer(net.parameters()))


def _labelled() -> tuple:
    return torch.randn(16, 6), torch.randint(0, 3, (16,))


PROGRAMS = {
    "images": Program(Images, lambda: (torch.randn(2, 3, 8, 8),)),
    "words": Program(Words, lambda: (torch.randint(0, 30, (2, 7)),)),
    "sequence": Program(Sequence, lambda: (torch.randn(2, 5, 6),)),
    "adamw": Program(Trained, _labelled, lambda p: torch.optim.AdamW(p, lr=0.01)),
    "momentum": Program(Trained, _labelled,
                        lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "own step": Program(Trained, _labelled, lambda p: zoo.AdaBelief(p)),
}
