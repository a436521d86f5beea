"""What single kernels gain over eager, forward and backward: ``python -m benchmarks.kernels``.

Each row runs as a training step of its own. Of poptorch the kernels' time by its profile counts, of
eager the calls' time; rows whose names are given run alone.
"""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

import poptorch

REPEATS = 15


@dataclass(frozen=True)
class Row:
    """One call.

    Attributes:
        name: of the table's row.
        tensors: makes the floating-point operands, which take gradients.
        run: takes them, and the module of the row.
        module: a module that the row calls.
    """

    name: str
    tensors: Callable[[], list]
    run: Callable
    module: Callable[[], nn.Module] = nn.Identity


def images(*sizes):
    """One tensor."""
    return lambda: [torch.randn(*sizes)]


def layer(kind, *sizes):
    """A recurrent layer over [64, 32, input]."""
    return Row(f"{kind.__name__.lower()} {sizes[0]} -> {sizes[1]}", images(64, 32, sizes[0]),
               lambda module, x: module(x)[0], lambda: kind(*sizes))


def resized(mode, scale=2):
    """``F.interpolate`` of a batch of images."""
    options = {} if mode == "nearest" else {"align_corners": False}
    return Row(f"interpolate {mode} x{scale}", images(4, 32, 64, 64),
               lambda _, x: F.interpolate(x, scale_factor=scale, mode=mode, **options))


def depthwise(channels, size, kernel, stride=1):
    """Three convolutions of each channel by itself; the stride is that of the first."""
    name = f"depthwise {channels}x{size}x{size} {kernel}x{kernel}" + (" /2" if stride > 1 else "")
    options = {"padding": kernel // 2, "groups": channels}
    return Row(name, images(8, channels, size, size), lambda module, x: module(x),
               lambda: nn.Sequential(nn.Conv2d(channels, channels, kernel, stride, **options),
                                     *(nn.Conv2d(channels, channels, kernel, **options)
                                       for _ in range(2))))


class Indexed(nn.Module):
    """Holds the positions of a row."""

    def __init__(self, high, *sizes):
        super().__init__()
        self.register_buffer("index", torch.randint(0, high, sizes))


def indexed(name, tensors, run, high, *sizes):
    """A row with random positions below ``high``."""
    return Row(name, tensors, lambda module, *x: run(module.index, *x),
               lambda: Indexed(high, *sizes))


def table(rows, width, *others):
    """A table of vectors, and other tensors."""
    return lambda: [torch.randn(rows, width), *(torch.randn(*sizes) for sizes in others)]


ROWS = [
    layer(nn.LSTM, 128, 256), layer(nn.LSTM, 256, 256),
    layer(nn.GRU, 128, 256), layer(nn.RNN, 128, 256),
    indexed("embedding", table(30522, 256), lambda i, w: F.embedding(i, w), 30522, 8, 128),
    indexed("embedding_bag sum", table(30522, 64),
            lambda i, w: F.embedding_bag(i, w, mode="sum"), 30522, 256, 32),
    indexed("embedding_bag mean", table(30522, 64),
            lambda i, w: F.embedding_bag(i, w, mode="mean"), 30522, 256, 32),
    indexed("embedding_bag max", table(30522, 64),
            lambda i, w: F.embedding_bag(i, w, mode="max"), 30522, 256, 32),
    indexed("gather dim 1", table(1024, 512), lambda i, x: x.gather(1, i), 512, 1024, 512),
    indexed("gather dim 0", table(1024, 512), lambda i, x: x.gather(0, i), 1024, 1024, 512),
    indexed("scatter_add dim 0", table(1024, 512, (1024, 512)),
            lambda i, x, s: x.scatter_add(0, i, s), 1024, 1024, 512),
    indexed("index_select", table(30522, 256), lambda i, x: x.index_select(0, i), 30522, 2048),
    indexed("index_add", table(30522, 64, (8192, 64)),
            lambda i, x, s: x.index_add(0, i, s), 30522, 8192),
    indexed("scatter_reduce amax", table(1024, 512, (1024, 512)),
            lambda i, x, s: x.scatter_reduce(0, i, s, "amax"), 1024, 1024, 512),
    Row("group_norm 8", images(8, 64, 32, 32), lambda m, x: m(x), lambda: nn.GroupNorm(8, 64)),
    Row("instance_norm", images(8, 64, 32, 32), lambda m, x: m(x),
        lambda: nn.InstanceNorm2d(64, affine=True)),
    resized("nearest"), resized("bilinear"), resized("bicubic"), resized("bilinear", 0.5),
    Row("adaptive_avg_pool2d", images(8, 64, 32, 32), lambda _, x: F.adaptive_avg_pool2d(x, 7)),
    Row("adaptive_max_pool2d", images(8, 64, 32, 32), lambda _, x: F.adaptive_max_pool2d(x, 7)),
    Row("cumsum last", images(512, 1024), lambda _, x: x.cumsum(1)),
    Row("cumsum first", images(512, 1024), lambda _, x: x.cumsum(0)),
    Row("unfold 3x3", images(4, 32, 32, 32), lambda _, x: F.unfold(x, 3, padding=1)),
    Row("fold 3x3", images(4, 288, 1024), lambda _, x: F.fold(x, 32, 3, padding=1)),
    depthwise(128, 28, 3), depthwise(128, 28, 3, 2), depthwise(64, 56, 5),
    Row("exp of a transpose", images(1024, 1024), lambda _, x: x.T.exp()),
    Row("weight gradient, k = 16384", lambda: [torch.randn(16384, 32), torch.randn(32, 16)],
        lambda _, x, w: x @ w),
]


class Step(nn.Module):
    """A training step around a row; its loss hands a random gradient to the row."""

    def __init__(self, row):
        super().__init__()
        self.row = row
        self.module = row.module()
        self.tensors = nn.ParameterList([nn.Parameter(x) for x in row.tensors()])
        self.register_buffer("gradient", torch.randn_like(self.result()))

    def result(self):
        """The row's call."""
        return self.row.run(self.module, *self.tensors)

    def forward(self, scale):
        """The loss. Without the scale the gradients of linear rows would be constants."""
        out = self.result()
        loss = (out * (self.gradient * scale)).sum()
        return poptorch.identity_loss(loss, reduction="none")


def eager_ms(step):
    """Median times of (forward, backward)."""
    inputs, times = list(step.parameters()), ([], [])
    for _ in range(REPEATS):
        start = time.perf_counter()
        out = step.result()
        middle = time.perf_counter()
        torch.autograd.grad(out, inputs, step.gradient)
        times[0].append(middle - start)
        times[1].append(time.perf_counter() - middle)
    return [1e3 * statistics.median(part) for part in times]


def is_around(entry):
    """Whether a line of the profile belongs to the loss or to the step, and not to the row."""
    if not entry["place"]:
        return True
    code = Step.forward.__code__
    lines = {line for _, _, line in code.co_lines() if line}
    return any(f"{code.co_filename}:{line}" == entry["place"].split(",")[0] for line in lines)


def our_ms(step):
    """Times of (forward, backward) of the row's kernels in a mean run."""
    options = poptorch.Options().showCompilationProgressBar(False)
    model = poptorch.trainingModel(step, options, torch.optim.SGD(step.parameters(), lr=1e-9))
    for _ in range(3):
        model(torch.ones(1))
    executable = model._executable
    executable.set_profiling(True)
    for _ in range(REPEATS):
        model(torch.ones(1))
    found = {"forward": 0.0, "backward": 0.0}
    for entry in executable.profile():
        if entry["phase"] in found and not is_around(entry):
            found[entry["phase"]] += entry["ns"] / REPEATS / 1e6
    return list(found.values())


def main(names):
    """Prints the table."""
    print(f"{'kernel':28} {'eager ms':>17} {'poptorch ms':>17} {'ratio':>15}")
    print(f"{'':28} {'forward backward':>17} {'forward backward':>17} {'forward backward':>15}")
    for row in ROWS:
        if names and not any(name in row.name for name in names):
            continue
        torch.manual_seed(0)
        step = Step(row)
        eager, ours = eager_ms(step), our_ms(step)
        ratios = [e / max(o, 1e-6) for e, o in zip(eager, ours, strict=True)]
        texts = [f"{a:8.3f} {b:8.3f}" for a, b in (eager, ours)]
        print(f"{row.name:28} {texts[0]} {texts[1]} {ratios[0]:7.2f} {ratios[1]:7.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
