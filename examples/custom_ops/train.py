"""Trains a network with custom C++ operations, and compares it with plain PyTorch.

One call of g++ builds the operations of this folder (cube, leaky relu, add scalar, reduce) into a
library, which the example loads and calls in ``forward``. Each has its gradient in C++, so both
passes run without Python. The example also trains the same network with PyTorch's own functions. At
the end the weights are equal except for rounding.

Examples:
    python examples/custom_ops/train.py
    python examples/custom_ops/train.py --steps 200 --compiler clang++
"""

import argparse
import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

import poptorch

FOLDER = Path(__file__).parent
DOMAIN = "com.example"


def build(folder, compiler):
    """Compiles the ops of this folder into one library; returns its path."""
    library = Path(folder) / "libexamples.so"
    subprocess.run(
        [compiler, "-std=c++17", "-O2", "-fPIC", "-shared", f"-I{poptorch.include_path()}",
         *map(str, sorted(FOLDER.glob("*.cpp"))), "-o", str(library)], check=True)
    return library


def call(name, *inputs, **attributes):
    """The one output of an op of the library."""
    return poptorch.custom_op(list(inputs), name, DOMAIN, 1, example_outputs=[inputs[0]],
                              attributes=attributes)[0]


class Net(nn.Module):
    """Two layers; errors count by their absolute cubes, large ones most."""

    def __init__(self, with_custom_ops):
        super().__init__()
        self.hidden, self.out = nn.Linear(4, 16), nn.Linear(16, 2)
        self.with_custom_ops = with_custom_ops

    def forward(self, x, target):
        if self.with_custom_ops:
            y = call("AddScalar", self.out(call("LeakyRelu", self.hidden(x), alpha=0.1)), value=0.5)
            parts = call("Cube", (y - target).abs()).chunk(2, dim=1)
            return y, poptorch.identity_loss(call("Reduce", *parts, reduction="mean"), "none")
        y = self.out(nn.functional.leaky_relu(self.hidden(x), 0.1)) + 0.5
        return y, poptorch.identity_loss((y - target).abs() ** 3, "mean")


def train(with_custom_ops, args):
    """The weights after training, and the first and the last loss."""
    torch.manual_seed(args.seed)
    net = Net(with_custom_ops)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.learning_rate)
    options = poptorch.Options().showCompilationProgressBar(False)
    model = poptorch.trainingModel(net, options, optimizer) if with_custom_ops else net
    losses = []
    for _ in range(args.steps):
        x = torch.randn(32, 4)
        target = torch.stack([x.sum(1), x[:, 0] * x[:, 1]], 1)
        optimizer.zero_grad()
        loss = model(x, target)[1]
        losses.append(loss.item())
        if not with_custom_ops:
            loss.backward()
            optimizer.step()
    weights = torch.cat([weight.detach().flatten() for weight in net.parameters()])
    if with_custom_ops:
        print("ops of the library:", {name: count for ops in model.op_report().values()
                                      for name, count in ops.items() if DOMAIN in name})
        model.destroy()
    return weights, losses[0], losses[-1]


def parse_arguments(words=None):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiler", default="g++")
    return parser.parse_args(words)


def main():
    """Trains both networks and prints how far they are apart."""
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        ctypes.cdll.LoadLibrary(str(build(folder, args.compiler)))
    ours, first, last = train(True, args)
    reference, *_ = train(False, args)
    print(f"loss: {first:.3f} -> {last:.3f}")
    print(f"largest difference of a weight: {(ours - reference).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
