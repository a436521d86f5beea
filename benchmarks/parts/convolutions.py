"""Convolutions one by one, compared with ATen: ``python -m benchmarks convolutions``.

Of ours the kernels' time by the profile of a training step counts, of ATen the call's: once with
row-major images, as a user's program gives them, and once with channels-last ones, as they lie
between the layers of a network.
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
from benchmarks.convolution_problems import LAST, every_problem
from benchmarks.part import Part, ratio
from benchmarks.table import Column

COLUMNS = [
    Column("layer", "layer", "", -28),
    Column("batch", "batch", "d"),
    Column("computes", "computes", "", -8),
    Column("layout", "images", "", -13),
    Column("algorithm", "algorithm", "", -26),
    Column("aten_us", "ATen us", ".1f"),
    Column("us", "ours us", ".1f"),
    Column("ratio", "times as fast"),
]


class Step(nn.Module):
    """A training step around a layer, with the gradient that the direction says."""

    def __init__(self, layer, direction, layout):
        super().__init__()
        self.layer, self._is_last = layer.module(), layout == LAST
        self.layer.weight.requires_grad_(direction != "dx")
        self.shift = nn.Parameter(torch.zeros(()), requires_grad=direction == "dx")

    def forward(self, x):
        """The loss of images, whose channels are the last dimension if they lie so."""
        x = x.movedim(-1, 1) if self._is_last else x
        y = self.layer(x + self.shift if self.shift.requires_grad else x)
        return poptorch.identity_loss((y * y).sum(), "none")


class Ours:
    """The compiled step."""

    def __init__(self, layer, direction, layout):
        step = Step(layer, direction, layout)
        channels = (layer.inputs,)
        size = layer.size + channels if layout == LAST else channels + layer.size
        self._x = torch.randn(layer.batch, *size)
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


def aten_call(layer, direction, layout):
    """The convolution, or its gradient, by torch."""
    module = layer.module()
    x = torch.randn(layer.batch, layer.inputs, *layer.size)
    w = module.weight.detach()
    if layout == LAST:
        form = {2: torch.channels_last, 3: torch.channels_last_3d}[len(layer.size)]
        x, w = (t.contiguous(memory_format=form) for t in (x, w))
    geometry = [module.stride, module.padding, module.dilation, False, [0] * len(layer.size),
                layer.groups]
    if direction == "forward":
        return lambda: torch.ops.aten.convolution(x, w, None, *geometry)
    y = torch.ops.aten.convolution(x, w, None, *geometry)
    mask = [direction == "dx", direction == "dw", False]
    return lambda: torch.ops.aten.convolution_backward(y, x, w, None, *geometry, mask)


def measured(problem, blocks=BLOCKS, block_s=BLOCK_S):
    """The row of a problem; what is not asked for is as in :func:`beside_aten.medians_us`."""
    layer, direction, layout = problem
    torch.manual_seed(0)
    ours, aten = Ours(*problem), aten_call(*problem)
    once_s = max(min(seconds(call) for _ in range(3)) for call in (ours.run, aten))
    sides = [ours.kernel_s, lambda count: seconds(aten, count)]
    us, aten_us = medians_us(sides, once_s, blocks, block_s)
    ours.destroy()
    return {"layer": layer.name, "batch": layer.batch, "computes": direction, "layout": layout,
            "algorithm": ours.algorithm, "us": us, "aten_us": aten_us,
            "ratio": ratio(aten_us, us)}


def _measure(plan):
    yield from measured_rows(plan, every_problem(), lambda p: f"{p[0].name} {p[1]} {p[2]}",
                             measured)


def conclude(rows):
    """The means of each direction and layout, and how many are slower than ATen."""
    cases = [row | {"case": f"{row['computes']}, {row['layout']}"} for row in rows]
    return conclusions(cases, "case", lambda row: f"{row['layer']} of {row['batch']}")


PART = Part("convolutions", "convolutions of published networks, compared with ATen", COLUMNS,
            _measure, conclude, minutes=(15.0, 1.5), keys=("layer", "batch", "computes", "layout"))
