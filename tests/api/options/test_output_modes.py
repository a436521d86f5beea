"""Shapes and values of results for every output mode and every way to cut the batch."""

import itertools

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

MODES = poptorch.OutputMode
ROWS = 3  # of a micro-batch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        loss = poptorch.identity_loss((x * self.weight).sum(), reduction="none")
        return x * 2, x.sum(), (x > 4).int(), loss


def kept(values, mode, period):
    """What a mode keeps of values [iterations, replicas, micro-batches, ...] of each step."""
    if mode is MODES.All:
        return values.flatten(0, 2)
    if mode is MODES.EveryN:
        return values[period - 1::period].flatten(0, 2)
    if mode is MODES.Final:
        return values[-1, :, -1]
    return values.sum((0, 2), dtype=values.dtype)


def joined(values, kept_steps):
    """Rows of several steps one after the other; numbers as a vector, one number as it is."""
    if values.dim() > 1:
        return values.flatten(0, 1)
    return values if kept_steps > 1 else values.reshape(())


CUTS = [(training, d, r, g, mode) for training, d, r, g, mode in itertools.product(
    (False, True), (1, 4), (1, 2), (1, 3), (MODES.All, MODES.Final, MODES.Sum, MODES.EveryN))
    if training or g == 1]


@pytest.mark.parametrize("training, iterations, replicas, accumulation, mode", CUTS)
def test_values(training, iterations, replicas, accumulation, mode):
    period = 2 if iterations > 1 else 1
    options = quiet_options(deviceIterations=iterations, replicationFactor=replicas)
    options.outputMode(mode, period).Training.gradientAccumulation(accumulation)
    net = Net()
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=0.0)) \
        if training else poptorch.inferenceModel(net, options)
    for _ in range(2):
        steps = torch.randint(0, 9, (iterations, replicas, accumulation, ROWS, 2)).float()
        results = model(steps.flatten(0, 3))
        expected = (steps * 2, steps.sum((3, 4)), (steps > 4).int(), steps.sum((3, 4)) * 0)
        for result, values in zip(results, expected, strict=True):
            values = kept(values, mode, period)
            assert torch.equal(result, joined(values, values.shape[0]))


class Whole(torch.nn.Module):
    def forward(self, x):
        return x + 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
def test_many_steps_are_summed_in_one_rounding(dtype):
    options = quiet_options(deviceIterations=4096, outputMode=MODES.Sum)
    model = poptorch.inferenceModel(Whole(), options)
    steps = torch.randint(0, 2, (4096,)).to(dtype)
    assert torch.equal(model(steps), steps.sum()[None].to(dtype))
    assert model(torch.zeros(4096, dtype=dtype)) == 0


def test_sums_that_do_not_fit():
    model = poptorch.inferenceModel(Whole(), quiet_options(deviceIterations=200,
                                                           outputMode=MODES.Sum))
    steps = torch.ones(200, dtype=torch.int8)
    steps[100:] = -1
    assert model(steps) == 0
    steps[100:] = 1
    for _ in range(2):
        with pytest.raises(poptorch.Error, match=(
                r'^\[OutputMode.Sum\] the sum of "output.0" over the steps of a run is beyond i8\. '
                r"Return it in a type that has room, or use OutputMode.All\.")):
            model(steps)
    steps[0] = 0
    steps[1:73] = -1
    assert model(steps) == 55


@pytest.mark.parametrize("training", [False, True])
def test_default(training):
    options = quiet_options(deviceIterations=2)
    wrap = poptorch.trainingModel if training else poptorch.inferenceModel
    model = wrap(Net(), options)
    assert options.defaultOutputMode()
    assert model.options.output_mode is (MODES.Final if training else MODES.All)
    x = torch.arange(4.0).reshape(4, 1)
    assert torch.equal(model(x)[0], x[2:] * 2 if training else x * 2)
