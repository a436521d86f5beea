"""Two threads, each with executors of its own that compile, run and end at the same time.

Run by ``python -m tests.tsan``. Each thread must get what it gets alone, bit for bit.
"""

import sys
import threading

import torch
from torch import nn

import poptorch

ROUNDS = 2  # of compiling, running and ending
KERNEL_THREADS = 2  # of each program


class Trained(nn.Module):
    """Convolutions, norms and dropout, with a loss."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Dropout(0.25), nn.Flatten(), nn.Linear(16 * 16 * 16, 32), nn.GELU(),
            nn.Linear(32, 10))
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, target):
        y = self.layers(x)
        return y, self.loss(y, target)


class Inferred(nn.Module):
    """Embeddings, a recurrent layer, attention, and ops that have no row."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(100, 64)
        self.recurrent = nn.LSTM(64, 64, batch_first=True)
        self.attention = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True)

    def forward(self, x):
        y, _ = self.recurrent(self.words(x))
        y = torch.special.erfinv(torch.tanh(self.attention(y)) * 0.5)
        values, _ = torch.sort(y, dim=-1)
        return values.softmax(-1), torch.cumsum(y, 1).half()


def options(training):
    """Of a program that loops."""
    made = poptorch.Options()
    made.showCompilationProgressBar(False)
    made.deviceIterations(2)
    made.randomSeed(3)
    if training:
        made.Training.gradientAccumulation(2)
    return made


def train(seed):
    """Results of a training executor, and the weights after it."""
    torch.manual_seed(seed)
    module = Trained().train()
    executor = poptorch.trainingModel(
        module, options(True), poptorch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9))
    images, targets = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))
    results = [executor(images, targets)[1].clone() for _ in range(3)]
    executor.copyWeightsToHost()
    executor.destroy()
    return [*results, *(p.detach().clone() for p in module.parameters())]


def infer(seed):
    """Results of an inference executor."""
    torch.manual_seed(seed)
    executor = poptorch.inferenceModel(Inferred().eval(), options(False))
    words = torch.randint(100, (16, 12))
    results = [part.clone() for _ in range(3) for part in executor(words)]
    executor.destroy()
    return results


def several(lives, wait):
    """What each life gives, ROUNDS times, all of them in threads of their own at once."""
    found, barrier = {}, threading.Barrier(len(lives))

    def live(number, life):
        torch.set_num_threads(KERNEL_THREADS)
        for round_ in range(ROUNDS):
            barrier.wait(wait)
            found[number, round_] = life(round_)

    threads = [threading.Thread(target=live, args=item) for item in enumerate(lives)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def main():
    """Exit status 1: a thread did not get what it gets alone."""
    wait = 1200
    lives = [train, infer]
    together = several(lives, wait)
    alone = {}
    for number, life in enumerate(lives):
        for (_, round_), results in several([life], wait).items():
            alone[number, round_] = results
    if together.keys() != alone.keys():
        return 1
    same = all(torch.equal(a, b) for key in alone for a, b in zip(together[key], alone[key],
                                                                  strict=True))
    print("[tsan] the threads got", "what they get alone" if same else "other results than alone")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
