"""Recurrent networks."""

import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from tests.networks.zoo.base import Network, adam, integers, network, normal, sgd


class Tagger(nn.Module):
    """Embedding, a two-layer LSTM in both directions, a label for each word."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.words = nn.Embedding(30, 12)
        self.lstm = nn.LSTM(
            12, 10, num_layers=2, batch_first=True, bidirectional=True, dropout=dropout
        )
        self.head = nn.Linear(20, 6)

    def forward(self, words, labels):
        states, (hidden, cell) = self.lstm(self.words(words))
        out = self.head(states)
        if not self.training:
            return out, hidden, cell
        loss = F.cross_entropy(out.transpose(1, 2), labels) + cell.square().mean()
        return (out, hidden, cell), poptorch.identity_loss(loss, reduction="none")


@network
def lstm_tagger(dropout=0.0):
    """A bidirectional LSTM whose hidden and cell states take part in the result and the loss."""

    def make(generator):
        return integers(generator, 30, 6, 9), integers(generator, 6, 6, 9)

    return Network(
        Tagger(dropout), make, adam(), splits=False, random=dict(dropout=0.3)
    )


class Forecaster(nn.Module):
    """A two-layer GRU, time first, with given initial states."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 8, num_layers=2)
        self.head = nn.Linear(8, 4)

    def forward(self, x, start, target):
        states, last = self.gru(x, start)
        out = self.head(states)
        if not self.training:
            return out, last
        loss = F.l1_loss(out, target) + last.mean()
        return (out, last), poptorch.identity_loss(loss, reduction="none")


@network
def gru_forecaster():
    """A GRU that predicts the next values; absolute error."""

    def make(generator):
        x, start = normal(generator, 7, 5, 4), normal(generator, 2, 5, 8)
        return x, start, normal(generator, 7, 5, 4)

    return Network(Forecaster(), make, sgd(momentum=0.5), splits=False)


class Elman(nn.Module):
    """A tanh RNN, a ReLU RNN without biases, and a cell called in a Python loop."""

    def __init__(self):
        super().__init__()
        self.tanh = nn.RNN(5, 8, batch_first=True)
        self.relu = nn.RNN(8, 6, batch_first=True, nonlinearity="relu", bias=False)
        self.cell = nn.LSTMCell(6, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x, target):
        x, _ = self.relu(self.tanh(x)[0])
        hidden = torch.zeros(x.shape[0], 6, dtype=x.dtype)
        cell = torch.zeros_like(hidden)
        for step in range(x.shape[1]):
            hidden, cell = self.cell(x[:, step], (hidden, cell))
        out = self.head(hidden)
        return (out, F.cross_entropy(out, target)) if self.training else out


@network
def rnn_classifier():
    """Plain RNNs, and a cell unrolled by Python."""

    def make(generator):
        return normal(generator, 8, 5, 5), integers(generator, 3, 8)

    return Network(Elman(), make, adam())
