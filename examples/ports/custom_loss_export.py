"""Trains with a custom loss, writes the compiled model to a file, and continues in a new process.

The loss is the quantile ("pinball") loss: the network's three outputs become the 10 %, 50 % and
90 % quantiles of a noisy curve. Half-way through training the example writes the model to a file. A
new process loads it, without tracing or compiling anything, and trains as many steps as this one:
both get the same bits.

Examples:
    python examples/ports/custom_loss_export.py
    python examples/ports/custom_loss_export.py --steps 2000 --file quantiles.poptorch
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

import poptorch

QUANTILES = (0.1, 0.5, 0.9)


class PinballLoss(nn.Module):
    """Mean of ``max(q * error, (q - 1) * error)``; ``identity_loss`` marks it for poptorch."""

    def __init__(self):
        super().__init__()
        self.register_buffer("quantiles", torch.tensor(QUANTILES))

    def forward(self, predicted, target):
        error = target - predicted
        loss = torch.maximum(self.quantiles * error, (self.quantiles - 1) * error)
        return poptorch.identity_loss(loss, reduction="mean")


class Net(nn.Module):
    """Takes ``[batch, 1]``, predicts ``[batch, 3]`` quantiles."""

    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Dropout(0.02), nn.Linear(width, width), nn.Tanh(),
            nn.Linear(width, len(QUANTILES)),
        )
        self.loss = PinballLoss()

    def forward(self, x, target=None):
        predicted = self.layers(x)
        return predicted if target is None else (predicted, self.loss(predicted, target))


def make_data(count, seed):
    """Points of a sine whose noise grows from left to right."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 1, generator=generator) * 4 - 2
    noise = torch.randn(count, 1, generator=generator) * (0.1 + 0.1 * (x + 2))
    return x, torch.sin(2 * x) + noise


def train(model, steps, first_seed, label):
    """Trains for some steps; returns a digest of all the results, and the last loss."""
    digest = hashlib.sha256()
    with tqdm(range(steps), desc=label) as bar:
        for step in bar:
            predicted, loss = model(*make_data(128, first_seed + step))
            digest.update(predicted.numpy().tobytes() + loss.numpy().tobytes())
            bar.set_postfix(loss=f"{loss.item():.4f}")
    return digest.hexdigest(), loss.item()


def share_below(model):
    """For each quantile, the share of new points below the prediction."""
    x, target = make_data(4000, seed=10_000_000)
    inference = poptorch.inferenceModel(model.model.eval())
    return (target < inference(x)).float().mean(0).tolist()


def parse_arguments():
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=1200, help="half before, half after (default: %(default)s)")
    add("--seed", type=int, default=0, help="default: %(default)s")
    add("--file", help="where to write the model (default: a folder that is removed)")
    add("--load", action="store_true", help="only load --file, train the second half")
    return parser.parse_args()


def main():
    """Trains, exports, goes on; lets a new process do the second half, too."""
    args = parse_arguments()
    half, second_seed = args.steps // 2, args.seed + args.steps
    if args.load:
        print(train(poptorch.load(args.file), half, second_seed, "new process")[0])
        return
    torch.manual_seed(args.seed)
    net = Net()
    options = poptorch.Options().randomSeed(args.seed)
    model = poptorch.trainingModel(net, options, poptorch.optim.Adam(net.parameters(), lr=2e-3))
    train(model, half, args.seed, "first half")
    with tempfile.TemporaryDirectory() as folder:
        file = args.file or str(Path(folder) / "quantiles.poptorch")
        model.compileAndExport(file, *make_data(128, second_seed))
        command = [sys.executable, __file__, *sys.argv[1:], "--load", "--file", file]
        theirs = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    ours, loss = train(model, half, second_seed, "second half")
    shares = ", ".join(f"{q:.0%}: {s:.1%}" for q, s in zip(QUANTILES, share_below(model)))
    print(f"loss {loss:.4f}; share of new points below each quantile: {shares}")
    print(f"the new process computed the same bits: {ours == theirs.strip()}")


if __name__ == "__main__":
    main()
