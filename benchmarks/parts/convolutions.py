"""Convolutions one by one, beside ATen: ``python -m benchmarks convolutions``.

Of ours the kernels' time by the profile of a training step counts, of ATen the call's, with
row-major and with channels-last tensors: the ratio is the better of the two over ours.
"""

import torch
from torch import nn

import poptorch
from benchmarks.beside_aten import (
    BLOCK_S,
    BLOCKS,
    conclusions,
    kernel_s,
    measured_rows,
    medians_us,
    seconds,
)
from benchmarks.convolution_problems import every_problem
from benchmarks.part import Part, ratio
from benchmarks.table import Column

COLUMNS = [
    Column("layer", "layer", "", -28),
    Column("batch", "batch", "d"),
    Column("computes", "computes", "", -8),
    Column("algorithm", "algorithm", "", -26),
    Column("rows_us", "ATen us", ".1f"),
    Column("last_us", "channels last", ".1f"),
    Column("us", "ours us", ".1f"),
    Column("ratio", "times as fast"),
]


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


class Ours:
    """The compiled step."""

    def __init__(self, layer, direction):
        step = Step(layer, direction)
        self._x = torch.randn(layer.batch, layer.inputs, *layer.size)
        options = poptorch.Options().showCompilationProgressBar(False)
        self._model = poptorch.trainingModel(
            step, options, torch.optim.SGD(step.parameters(), lr=1e-9))
        self._op = "convolution" if direction == "forward" else "convolution_backward"
        self.run()
        self._executable = self._model._executable
        self.kernel_s(1)
        self.algorithm = next(row["algorithm"] for row in self._executable.profile()
                              if row["op"] == self._op)

    def run(self):
        """One step."""
        self._model(self._x)

    def kernel_s(self, count):
        """Time of the convolution in so many steps."""
        return kernel_s(self._executable, self.run, count, (self._op,))

    def destroy(self):
        """Gives the memory back."""
        self._model.destroy()


def aten_call(layer, direction, memory_format=None):
    """The convolution, or its gradient, by torch."""
    module = layer.module()
    x = torch.randn(layer.batch, layer.inputs, *layer.size)
    w = module.weight.detach()
    if memory_format is not None:
        x, w = (t.contiguous(memory_format=memory_format) for t in (x, w))
    geometry = [module.stride, module.padding, module.dilation, False, [0] * len(layer.size),
                layer.groups]
    if direction == "forward":
        return lambda: torch.ops.aten.convolution(x, w, None, *geometry)
    y = torch.ops.aten.convolution(x, w, None, *geometry)
    mask = [direction == "dx", direction == "dw", False]
    return lambda: torch.ops.aten.convolution_backward(y, x, w, None, *geometry, mask)


def measured(problem, blocks=BLOCKS, block_s=BLOCK_S):
    """The row of a problem; what is not asked for is as in :func:`beside_aten.medians_us`."""
    layer, direction = problem
    torch.manual_seed(0)
    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(len(layer.size))
    ours = Ours(layer, direction)
    calls = [aten_call(layer, direction, memory_format) for memory_format in (None, last)]
    once_s = max(min(seconds(call) for _ in range(3)) for call in (ours.run, *calls))
    sides = [ours.kernel_s, *(lambda count, call=call: seconds(call, count) for call in calls)]
    us, rows_us, last_us = medians_us(sides, once_s, blocks, block_s)
    ours.destroy()
    return {"layer": layer.name, "batch": layer.batch, "computes": direction,
            "algorithm": ours.algorithm, "us": us, "rows_us": rows_us, "last_us": last_us,
            "ratio": ratio(min(rows_us, last_us), us)}


def _measure(plan):
    yield from measured_rows(plan, every_problem(), lambda p: f"{p[0].name} {p[1]}", measured)


def conclude(rows):
    """The means of each direction, and how many are slower than ATen."""
    return conclusions(rows, "computes", lambda row: f"{row['layer']} of {row['batch']}")


PART = Part("convolutions", "convolutions of published networks, beside ATen", COLUMNS, _measure,
            conclude, minutes=(15.0, 1.5), keys=("layer", "batch", "computes"))
