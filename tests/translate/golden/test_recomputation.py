"""What the backward pass computes again: golden text, and what is never run twice."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch import recomputationCheckpoint
from poptorch._capture import capture
from poptorch._optimizer.link import OptimizerLink
from poptorch._translate import StepSpec, translate
from tests.capture.common import Function, check_training
from tests.helpers import check_golden


def _two_parts(m, x):
    y = recomputationCheckpoint((x * m.w).sin().cos())
    z = recomputationCheckpoint(y.exp().tanh())
    return F.mse_loss(z.sin(), x)


def _views(m, x):
    y = recomputationCheckpoint((x * m.w).exp().view(4)[:2])
    return F.mse_loss(y.sin(), y)


def _blocks(m, x):
    with poptorch.Block("a", ipu_id=0):
        x = (x * m.w).exp()
    with poptorch.Block("b", ipu_id=1):
        return F.mse_loss(recomputationCheckpoint(x.sin().cos()).tanh(), x)


def _results(m, x):
    """Operations with several results: all of them are kept, or none."""
    y = F.layer_norm((x * m.w).exp(), (2,)).tanh()
    y = recomputationCheckpoint(F.layer_norm(y.exp(), (2,)))
    return F.mse_loss(recomputationCheckpoint(y.sin()).exp(), x)


CASES = {"recomputation": _two_parts, "recomputation_results": _results,
         "recomputation_views": _views, "recomputation_blocks": _blocks}


@pytest.mark.parametrize("name", CASES)
def test_module(name, update):
    module = Function(CASES[name], {"w": torch.ones(2, 2)})
    captured = capture(module, (torch.zeros(2, 2),), {}, training=True)
    link = OptimizerLink(module, poptorch.optim.SGD(module.parameters(), lr=0.1))
    spec = StepSpec(training=True, strategy=poptorch.ShardedExecution())
    program = translate(captured, spec, link)
    program.module.verify()
    here = Path(__file__).parent
    check_golden(here / f"{name}.ir", program.module.text().replace(f"{here}/", ""), update)


def test_the_captured_graph_has_the_marks():
    module = Function(lambda m, x: (x, _two_parts(m, x)), {"w": torch.rand(2, 2).double()})
    captured = check_training(module, torch.rand(2, 2).double())
    marks = [n for n in captured.graph.nodes if n.target is torch.ops.poptorch.checkpoint.default]
    assert [mark.args[0].target.overloadpacket.__name__ for mark in marks] == ["cos", "tanh"]


def test_inference_has_none():
    captured = capture(Function(lambda m, x: _two_parts(m, x), {"w": torch.ones(2, 2)}),
                       (torch.zeros(2, 2),), {}, training=False)
    assert "checkpoint" not in str(captured.graph)
