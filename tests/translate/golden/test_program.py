"""The module that translate builds around a captured graph: golden text."""

from pathlib import Path

import pytest
import torch

import poptorch
from poptorch._capture import capture
from poptorch._optimizer.link import OptimizerLink
from poptorch._translate import StepSpec, translate
from tests.helpers import check_golden


class Net(torch.nn.Module):
    """One layer with dropout and a buffer that counts."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x, target):
        self.calls += 1
        y = torch.nn.functional.dropout(self.fc(x), 0.25, self.training)
        return y, torch.nn.functional.mse_loss(y, target)


CASES = {
    "inference": StepSpec(training=False, device_iterations=3),
    "training": StepSpec(training=True),
    "accumulation": StepSpec(training=True, device_iterations=2, accumulation=4),
    "accumulation_sum": StepSpec(training=True, accumulation=2, mean=False),
    "replicas": StepSpec(training=True, replicas=2, keep_gradients=True),
    "loss_scale": StepSpec(training=True, accumulation=2, clip_norm=1.0),
    "automatic_loss_scale": StepSpec(training=True, accumulation=2, replicas=2,
                                     automatic_loss_scaling=True),
    "combined": StepSpec(training=True, accumulation=2),
}
SETTINGS = {"loss_scale": {"loss_scaling": 64.0}, "combined": {"use_combined_accum": True}}


# Optimizers other than SGD with momentum, by golden file.
FORMULAS = {"formula": lambda p: poptorch.optim.RMSprop(p, lr=0.1, momentum=0.9)}


@pytest.mark.parametrize("name", [*CASES, *FORMULAS])
def test_module(name, update):
    spec = CASES.get(name, StepSpec(training=True))
    net = Net().train(spec.training)
    captured = capture(net, (torch.zeros(2, 4), torch.zeros(2, 3)), {}, training=spec.training)
    link = None
    if spec.training:
        make = FORMULAS.get(name, lambda p: poptorch.optim.SGD(
            p, lr=0.1, momentum=0.9, **SETTINGS.get(name, {})))
        link = OptimizerLink(net, make(net.parameters()))
    program = translate(captured, spec, link)
    program.module.verify()
    here = Path(__file__).parent
    text = program.module.text().replace(f"{here}/", "")
    check_golden(here / f"{name}.ir", text, update)
    assert program.inputs == {0: "input.x", 1: "input.target"}
    assert set(program.states) == {"fc.weight", "fc.bias", "calls"}
    assert "calls" in program.updated
