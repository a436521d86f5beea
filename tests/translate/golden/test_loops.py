"""The graphs of loops and branches, forward and backward: golden text."""

from pathlib import Path

import pytest
import torch

import poptorch
from poptorch._capture import capture
from poptorch._optimizer.gradient_factor import GradientFactor
from poptorch._translate import StepSpec, translate
from tests.helpers import check_golden


class Repeated(torch.nn.Module):
    """Rounds that read a parameter and a tensor from outside, and draw random numbers."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4, bias=False)

    def forward(self, x):
        def body(h):
            return torch.nn.functional.dropout(torch.tanh(self.fc(h)), 0.25, self.training) + x

        h, = poptorch.for_loop(3, body, [x])
        return h, poptorch.identity_loss(h, "sum")


class Chosen(torch.nn.Module):
    """One of two functions of a parameter."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x):
        y, = poptorch.cond(x.sum() > 0, lambda v: v * self.w, [x], torch.neg, [x])
        return y, poptorch.identity_loss(y, "sum")


@pytest.mark.parametrize(("name", "kind"), [("loop", Repeated), ("branches", Chosen)])
@pytest.mark.parametrize("training", [False, True])
def test_module(name, kind, training, update):
    net = kind().train(training)
    captured = capture(net, (torch.zeros(2, 4),), {}, training=training)
    program = translate(captured, StepSpec(training=training, keep_gradients=training),
                        _Nothing() if training else None)
    program.module.verify()
    here = Path(__file__).parent
    text = program.module.text().replace(f"{here}/", "")
    check_golden(here / f"{name}_{'training' if training else 'inference'}.ir", text, update)


class _Nothing:
    """No update: the gradients are kept."""

    has_loss_scale = False

    def sum_dtypes(self, gradients):
        return {name: dtype for name, (_, dtype) in gradients.items()}

    def factor(self, e, spec, program, gradients, scaling):
        return gradients, GradientFactor(None, torch.float32, spec, gradients, program.shards)

    def emit_update(self, e, program, gradients, factor, whole):
        return None
