"""Convolutions of published networks beside ATen: ``python -m benchmarks.convolutions``.

Each layer runs with several batches and in three directions: its result, the gradient of its input
and that of its weight. Of poptorch the kernels' time by its profile counts, of eager the calls',
with row-major and with channels-last tensors; the ratio is the better of the two over poptorch's.

Examples:
    python -m benchmarks.convolutions            all of them, in about half an hour
    python -m benchmarks.convolutions --every 20   a sample: each twentieth
    python -m benchmarks.convolutions resnet tcn   layers whose names have one of these words
"""

import argparse
import statistics
import time
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import nn

import poptorch

REPEATS = 7
BATCHES = (1, 8, 64)
DIRECTIONS = ("forward", "dx", "dw")
MOST_PRODUCTS = 3e9  # of a call: larger ones are left out


@dataclass(frozen=True)
class Layer:
    """A convolution: sizes of the image without its batch, and of the kernel."""

    name: str
    inputs: int
    outputs: int
    size: tuple[int, ...]
    kernel: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    batch: int = 1

    def module(self):
        """The layer, with the padding that keeps sizes."""
        kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[len(self.size)]
        padding = self.dilation * (self.kernel - 1) // 2
        return kind(self.inputs, self.outputs, self.kernel, self.stride, padding, self.dilation,
                    self.groups, bias=False)

    def products(self):
        """Multiplications of a call."""
        pixels = prod(self.size) / self.stride ** len(self.size)
        kernel = self.kernel ** len(self.size)
        return self.batch * pixels * self.outputs * self.inputs / self.groups * kernel


# The distinct kinds of layers: He et al. 2015 (ResNet), Howard et al. 2017 and Sandler et al. 2018
# (MobileNet), Tan and Le 2019 (EfficientNet), Ronneberger et al. 2015 (U-Net), van den Oord et al.
# 2016 (WaveNet), Bai et al. 2018 (TCN), Tran et al. 2015 and 2018 (C3D, R(2+1)D).
LAYERS = [
    Layer("resnet stem", 3, 64, (224, 224), 7, 2),
    *(Layer(f"resnet 3x3 {c}", c, c, (s, s), 3) for c, s in ((64, 56), (128, 28), (256, 14),
                                                           (512, 7))),
    Layer("resnet 3x3 /2", 128, 256, (28, 28), 3, 2),
    Layer("resnet 1x1 64", 64, 256, (56, 56), 1),
    Layer("resnet 1x1 256", 256, 64, (56, 56), 1),
    Layer("resnet 1x1 /2", 256, 512, (56, 56), 1, 2),
    Layer("cifar 3x3 16", 16, 16, (32, 32), 3),
    Layer("cifar 3x3 32", 32, 32, (16, 16), 3),
    Layer("digits 5x5", 1, 32, (28, 28), 5),
    *(Layer(f"mobilenet depthwise {c}", c, c, (s, s), 3, groups=c)
      for c, s in ((32, 112), (144, 56), (512, 14))),
    Layer("mobilenet depthwise /2", 96, 96, (112, 112), 3, 2, groups=96),
    Layer("mobilenet 1x1 24", 144, 24, (56, 56), 1),
    Layer("mobilenet 1x1 512", 512, 512, (14, 14), 1),
    Layer("efficientnet depthwise 5x5", 240, 240, (28, 28), 5, groups=240),
    Layer("resnext 3x3, 32 groups", 128, 128, (56, 56), 3, groups=32),
    Layer("unet 3x3 64", 64, 64, (128, 128), 3),
    Layer("unet 3x3 512", 512, 512, (16, 16), 3),
    Layer("deeplab 3x3, dilated", 256, 256, (28, 28), 3, dilation=2),
    Layer("wavenet, dilated", 64, 128, (4096,), 3, dilation=16),
    Layer("wavenet 1x1", 64, 256, (4096,), 1),
    Layer("tcn", 128, 128, (512,), 7, dilation=4),
    Layer("c3d 3x3x3 3", 3, 64, (16, 56, 56), 3),
    Layer("c3d 3x3x3 64", 64, 64, (8, 28, 28), 3),
]


def problems():
    """All layers with all batches, in all directions, but for those that take too long."""
    for layer in LAYERS:
        for batch in BATCHES:
            one = replace(layer, batch=batch)
            if one.products() <= MOST_PRODUCTS:
                yield from ((one, direction) for direction in DIRECTIONS)


class Step(nn.Module):
    """A training step around a layer, with the gradient that the direction says."""

    def __init__(self, layer, direction):
        super().__init__()
        self.layer = layer.module()
        self.layer.weight.requires_grad_(direction != "dx")
        self.shift = nn.Parameter(torch.zeros(()), requires_grad=direction == "dx")

    def forward(self, x):
        """The loss."""
        y = self.layer(x + self.shift if self.shift.requires_grad else x)
        return poptorch.identity_loss((y * y).sum(), "none")


def ours(layer, direction):
    """The algorithm, and ms of a mean run."""
    x = torch.randn(layer.batch, layer.inputs, *layer.size)
    options = poptorch.Options().showCompilationProgressBar(False)
    step = Step(layer, direction)
    model = poptorch.trainingModel(step, options, torch.optim.SGD(step.parameters(), lr=1e-9))
    model(x)
    executable = model._executable
    executable.set_profiling(True)
    for _ in range(REPEATS):
        model(x)
    op = "convolution" if direction == "forward" else "convolution_backward"
    rows = [row for row in executable.profile() if row["op"] == op]
    model.destroy()
    return rows[0]["algorithm"], sum(row["ns"] / row["runs"] / 1e6 for row in rows)


def eager_ms(layer, direction, memory_format):
    """Median ms of a call of ATen's."""
    module = layer.module()
    x = torch.randn(layer.batch, layer.inputs, *layer.size)
    w = module.weight.detach()
    if memory_format is not None:
        x, w = (t.contiguous(memory_format=memory_format) for t in (x, w))
    dims = len(layer.size)
    geometry = [module.stride, module.padding, module.dilation, False, [0] * dims, layer.groups]
    y = torch.ops.aten.convolution(x, w, None, *geometry)
    mask = [direction == "dx", direction == "dw", False]
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        if direction == "forward":
            torch.ops.aten.convolution(x, w, None, *geometry)
        else:
            torch.ops.aten.convolution_backward(y, x, w, None, *geometry, mask)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def measured(layer, direction):
    """The line of one problem."""
    algorithm, ms = ours(layer, direction)
    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(len(layer.size))
    eager = [eager_ms(layer, direction, memory_format) for memory_format in (None, last)]
    return (f"{layer.name:28} {layer.batch:5} {direction:8} {algorithm:26} {ms:9.3f} "
            f"{eager[0]:9.3f} {eager[1]:9.3f} {min(eager) / max(ms, 1e-6):6.2f}")


def main(arguments=None):
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convolutions")
    parser.add_argument("names", nargs="*", help="words of names; none: all layers")
    parser.add_argument("--every", type=int, default=1, help="only each so many")
    args = parser.parse_args(arguments)
    print(f"{'layer':28} {'batch':>5} {'computes':8} {'algorithm':26} {'poptorch':>9} "
          f"{'rows':>9} {'last':>9} {'ratio':>6}")
    chosen = [one for one in problems()
              if not args.names or any(name in one[0].name for name in args.names)]
    for layer, direction in chosen[::args.every]:
        print(measured(layer, direction), flush=True)


if __name__ == "__main__":
    main()
