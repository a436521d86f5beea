"""Models whose files are damaged: between them, every kind of member and many kinds of op, and an
optimizer with its own ``step()``."""

import torch

import poptorch
from tests.helpers import quiet_options
from tests.own_step import zoo

F = torch.nn.functional


class Reader(torch.nn.Module):
    """Inference: a table, attention, a recurrence, a large constant."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(11, 8, padding_idx=0)
        self.norm = torch.nn.BatchNorm1d(8)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.rnn = torch.nn.LSTM(8, 6, batch_first=True)
        self.fc = torch.nn.Linear(6, 5)
        self.turn = torch.arange(30.0).sin().reshape(5, 6)

    def forward(self, words, scale=0.5):
        x = self.table(words)
        x = F.gelu(self.norm(x.transpose(1, 2))).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = self.rnn(F.layer_norm(x, (8,)))[0]
        y = torch.cat([self.fc(x[:, -1]) * scale, x[:, -1] @ self.turn.T], dim=1)
        return {"scores": y.softmax(1), "top": y.topk(3, dim=1), "words": words}


class Solver(torch.nn.Module):
    """Inference with what PyTorch computes: a convolution of sequences, an opaque op."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(2, 6, 3, padding=1)

    def forward(self, sequences):
        x = self.conv(sequences).mean(2)
        triangle = torch.eye(6) * 2 + torch.ones(6, 6).triu()
        return torch.linalg.solve_triangular(triangle, x.T, upper=True)


class Learner(torch.nn.Module):
    """Training: dropout, statistics, an image, a loss over classes."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.fc = torch.nn.Linear(16, 5)

    def forward(self, image, target):
        x = F.max_pool2d(F.relu(self.norm(self.conv(image))), 2)
        y = self.fc(F.dropout(x.flatten(1), 0.2))
        return y, F.cross_entropy(y, target)


def _reader():
    return poptorch.inferenceModel(Reader().eval(), quiet_options(deviceIterations=2))


def _learner():
    options = quiet_options(deviceIterations=2, replicationFactor=2, broadcastBuffers=False,
                            Training__gradientAccumulation=2, randomSeed=7)
    net = Learner()
    return poptorch.trainingModel(net, options, torch.optim.Adam(net.parameters(), lr=0.01))


def _inventor():
    net = Learner()
    options = quiet_options(deviceIterations=4, randomSeed=7)
    return poptorch.trainingModel(net, options, zoo.Lion(net.parameters()))


def _solver():
    return poptorch.inferenceModel(Solver(), quiet_options())


MAKERS = {"reader": _reader, "learner": _learner, "inventor": _inventor, "solver": _solver}
NATIVE = ("reader", "learner", "inventor")  # run without torch


def make(name: str) -> poptorch.PoplarExecutor:
    """The model of that name; with the same weights in every process."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return MAKERS[name]()


def arguments(name: str) -> tuple:
    """What the model is called with."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        if name == "reader":
            return (torch.randint(0, 11, (4, 7)),)
        if name == "solver":
            return (torch.randn(3, 2, 5),)
        return torch.randn(16, 2, 6, 6), torch.randint(0, 5, (16,))
