"""Networks that poptorch-run trains: each takes [batch, 6] numbers and a label for each row."""

import torch

from tests.runner.networks import Classifier


class Normed(torch.nn.Module):
    """Changes buffers, one of them of int64."""

    def __init__(self):
        super().__init__()
        self.norm, self.inner = torch.nn.BatchNorm1d(6), Classifier()

    def forward(self, x, label):
        return self.inner(self.norm(x), label)


class Convolved(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.inner = torch.nn.Conv1d(1, 1, 3, padding=1), Classifier()

    def forward(self, x, label):
        return self.inner(self.conv(x.unsqueeze(1)).squeeze(1), label)


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.inner = torch.nn.LSTM(2, 6, batch_first=True), Classifier()

    def forward(self, x, label):
        return self.inner(self.cell(x.view(-1, 3, 2))[0][:, -1], label)


class Attending(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.inner = torch.nn.TransformerEncoderLayer(2, 1, 8), Classifier()

    def forward(self, x, label):
        return self.inner(self.layer(x.view(-1, 3, 2)).flatten(1), label)


class Residual(torch.nn.Module):
    """Convolutions of images in two layers, with a sum and a pooling."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Conv2d(channels, 4, 3, padding=1)
                                   for channels in (1, 4))
        self.norm, self.inner = torch.nn.BatchNorm2d(4), Classifier()

    def forward(self, x, label):
        features = self.norm(self.first(x.view(-1, 1, 2, 3)))
        features = torch.relu(features + self.second(torch.relu(features)))
        return self.inner(torch.nn.functional.avg_pool2d(features, 2).view(-1, 4).repeat(1, 2)
                          [:, :6], label)


class Grouped(torch.nn.Module):
    """Upsamples by a transposed convolution."""

    def __init__(self):
        super().__init__()
        self.up, self.norm = torch.nn.ConvTranspose1d(2, 4, 2, 2), torch.nn.GroupNorm(2, 4)
        self.inner = Classifier()

    def forward(self, x, label):
        return self.inner(self.norm(self.up(x.view(-1, 2, 3))).mean(1), label)


class Embedded(torch.nn.Module):
    """Looks rows up by numbers that it computes, with a gradient by rows."""

    def __init__(self):
        super().__init__()
        self.table, self.inner = torch.nn.Embedding(9, 6), Classifier()

    def forward(self, x, label):
        rows = (x * 2).round().clamp(-4, 4).long() + 4
        return self.inner(x + self.table(rows).sum(1), label)


class Gated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.inner = torch.nn.GRU(3, 6, batch_first=True), Classifier()

    def forward(self, x, label):
        return self.inner(self.cell(x.view(-1, 2, 3))[0].sum(1), label)


class Shared(torch.nn.Module):
    """Uses one weight twice, and a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.layer, self.inner = torch.nn.Linear(6, 6), Classifier()
        self.scale = torch.nn.Parameter(torch.ones(6))

    def forward(self, x, label):
        hidden = torch.nn.functional.silu(self.layer(x))
        return self.inner(self.layer(hidden) * self.scale.softmax(0), label)


NETWORKS = {"dropout": Classifier, "batch norm": Normed, "convolution": Convolved,
            "recurrent": Recurrent, "attention": Attending, "residual": Residual,
            "group norm": Grouped, "embedding": Embedded, "gated": Gated, "shared": Shared}
