"""Trains a network with a custom activation: a C++ operation with its own gradient.

The activation, x + sin(a x)^2 / a, lets a network continue a wave beyond its training points;
``a``, one number for each channel, is trained too. Its source is in this file. g++ builds it, and
``poptorch.custom_op`` calls it in ``forward`` if ``isRunningOnIpu()`` says that the model is being
compiled; otherwise PyTorch computes the formula. The gradients of both inputs are a C++ operation
too. Training in plain PyTorch gives the same weights except for rounding.

Examples:
    python examples/ports/snake_op.py
    python examples/ports/snake_op.py --steps 2000 --compiler clang++
"""

import argparse
import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

import poptorch

SOURCE = r"""
#include <poptorch/custom_op.h>

#include <cmath>

namespace {
namespace custom = poptorch::custom;

// x [rows, channels] and a [channels].
void check(const custom::Tensor& x, const custom::Tensor& a) {
  custom::check(x.rank() == 2 && a.rank() == 1 && x.size(1) == a.size(0),
                "x must have two dimensions, and a one number for each of its columns.");
}

void snake_shape(custom::Shape& op) {
  check(op.input(0), op.input(1));
  op.add_output(op.input(0));
}

void snake(custom::Call& op) {
  const float* x = op.in<float>(0);
  const float* a = op.in<float>(1);
  float* y = op.out<float>(0);
  const int64_t columns = op.input(1).numel();
  op.parallel_for(op.input(0).numel(), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float sine = std::sin(a[i % columns] * x[i]);
      y[i] = x[i] + sine * sine / a[i % columns];
    }
  });
}

// Inputs: the gradient of y, x, a. Outputs: the gradients of x and a.
void gradient_shape(custom::Shape& op) {
  op.add_output(op.input(1));
  op.add_output(op.input(2));
}

void gradient(custom::Call& op) {
  const float* grad = op.in<float>(0);
  const float* x = op.in<float>(1);
  const float* a = op.in<float>(2);
  float* grad_x = op.out<float>(0);
  float* grad_a = op.out<float>(1);
  const int64_t rows = op.input(1).size(0), columns = op.input(1).size(1);
  op.parallel_for(columns, [=](int64_t begin, int64_t end) {
    for (int64_t column = begin; column < end; ++column) {
      double sum = 0;
      for (int64_t i = column; i < rows * columns; i += columns) {
        const double turn = static_cast<double>(a[column]) * x[i];
        const double slope = std::sin(2 * turn), rest = std::sin(turn) / a[column];
        grad_x[i] = static_cast<float>(grad[i] * (1 + slope));
        sum += grad[i] * (x[i] * slope / a[column] - rest * rest);
      }
      grad_a[column] = static_cast<float>(sum);
    }
  });
}
}  // namespace

POPTORCH_CUSTOM_OP("com.example", "Snake", 1)
    .inputs(2).shape(snake_shape).kernel(snake).gradient("SnakeGradient");

POPTORCH_CUSTOM_OP("com.example", "SnakeGradient", 1)
    .inputs(3).shape(gradient_shape).kernel(gradient);
"""


@functools.cache
def load_op(compiler):
    """Builds the op and loads it, once; the file is not needed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "snake.cpp", Path(folder) / "libsnake.so"
        source.write_text(SOURCE)
        subprocess.run([compiler, "-std=c++17", "-O2", "-fPIC", "-shared",
                        f"-I{poptorch.include_path()}", str(source), "-o", str(library)],
                       check=True)
        ctypes.cdll.LoadLibrary(str(library))


class Snake(nn.Module):
    """``x + sin(a x)^2 / a`` of ``x [rows, channels]``."""

    def __init__(self, channels):
        super().__init__()
        self.a = nn.Parameter(torch.linspace(0.5, 3.0, channels))

    def forward(self, x):
        if poptorch.isRunningOnIpu():
            return poptorch.custom_op([x, self.a], "Snake", "com.example", 1,
                                      example_outputs=[x])[0]
        return x + torch.sin(self.a * x) ** 2 / self.a


class Net(nn.Module):
    """Takes ``[batch, 1]``; with targets it returns ``(values [batch, 1], loss)``."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, width), Snake(width), nn.Linear(width, width),
                                    Snake(width), nn.Linear(width, 1))

    def forward(self, x, target=None):
        y = self.layers(x)
        return y if target is None else (y, nn.functional.mse_loss(y, target))


def wave(x):
    """What the network is to learn."""
    return torch.sin(3 * x) + 0.3 * x


def results(args, way):
    """Trains from ``--seed`` in one way.

    Args:
        args: the command line.
        way: ``"poptorch"``, or the dtype in which plain PyTorch is to compute.

    Returns:
        Values and weights by name, the loss of each step, and which custom ops the program has.
    """
    torch.manual_seed(args.seed)
    dtype = torch.float32 if way == "poptorch" else way
    net = Net(args.width).to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.learning_rate, momentum=0.9)
    model = poptorch.trainingModel(net, optimizer=optimizer) if way == "poptorch" else net
    generator = torch.Generator().manual_seed(args.seed)
    losses, ops = [], {}
    for _ in tqdm(range(args.steps), desc=f"with {way}"):
        x = (4 * torch.rand(args.batch, 1, generator=generator) - 2).to(dtype)
        _, loss = model(x, wave(x))
        losses.append(loss.item())
        if way != "poptorch":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if way == "poptorch":
        ops = {name: count for report in model.op_report().values()
               for name, count in report.items() if "com.example" in name}
        model.destroy()
    x = torch.linspace(-2, 2, 101, dtype=dtype).unsqueeze(1)
    tested = poptorch.inferenceModel(net.eval()) if way == "poptorch" else net
    return {"values": tested(x).detach(), **net.state_dict()}, losses, ops


def parse_arguments(words=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=400, help="default: %(default)s")
    add("--batch", type=int, default=64, help="default: %(default)s")
    add("--width", type=int, default=16, help="default: %(default)s")
    add("--learning-rate", type=float, default=0.01, help="default: %(default)s")
    add("--seed", type=int, default=0, help="default: %(default)s")
    add("--compiler", default="g++", help="default: %(default)s")
    return parser.parse_args(words)


def main(words=None):
    """Trains in both ways, prints losses and how far the results are apart."""
    args = parse_arguments(words)
    load_op(args.compiler)
    (ours, losses, ops), (plain, plain_losses, _) = (
        results(args, way) for way in ("poptorch", torch.float32))
    print("ops of the library:", ops)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, PyTorch's -> {plain_losses[-1]:.4f}")
    distance = max((ours[name] - x).abs().max().item() for name, x in plain.items())
    print(f"largest difference of a value or a weight: {distance:.1e}")


if __name__ == "__main__":
    main()
