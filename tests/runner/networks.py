"""Networks that poptorch-run computes as Python does, with arguments of one call."""

import torch
from torch import nn


class Classifier(nn.Module):
    """Takes int64 labels, which are narrowed, and draws random numbers."""

    def __init__(self):
        super().__init__()
        self.hidden, self.drop, self.out = nn.Linear(6, 16), nn.Dropout(0.3), nn.Linear(16, 3)

    def forward(self, x, label):
        scores = self.out(self.drop(torch.relu(self.hidden(x))))
        return scores, nn.functional.cross_entropy(scores, label)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm, self.out = nn.Embedding(50, 32), nn.LayerNorm(32), nn.Linear(32, 4)

    def forward(self, numbers):
        return self.out(torch.tanh(self.norm(self.table(numbers)).mean(1)))


class Spectrum(nn.Module):
    """Calls an operator that only PyTorch has."""

    def forward(self, x):
        return torch.linalg.svdvals(x), x.double().sum(0)


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                         nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(32, 5)).eval()


# Name -> (network, arguments).
INFERENCE = {
    "linear": lambda: (nn.Linear(4, 8), (torch.randn(3, 4),)),
    "wide": lambda: (nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)),
                     (torch.randn(32, 64),)),
    "convolutions": lambda: (convolutions(), (torch.randn(2, 3, 16, 16),)),
    "words": lambda: (Words(), (torch.randint(0, 50, (4, 7)),)),
    "recurrent": lambda: (nn.LSTM(8, 16, batch_first=True), (torch.randn(2, 5, 8),)),
    "only torch": lambda: (Spectrum(), (torch.randn(5, 4, dtype=torch.float64),)),
}
