"""Products in parts in the IR: golden text."""

from pathlib import Path

import pytest
import torch

from poptorch import MatMulSerializationMode, serializedMatMul
from poptorch._capture import capture
from poptorch._translate import StepSpec, translate
from tests.capture.common import Function
from tests.helpers import check_golden

CASES = {
    "products_input_channels": (MatMulSerializationMode.InputChannels, False),
    "products_reducing_dim": (MatMulSerializationMode.ReducingDim, False),
    "products_keep_precision": (MatMulSerializationMode.ReducingDim, True),
    "products_output_channels": (MatMulSerializationMode.OutputChannels, False),
}


@pytest.mark.parametrize("name", CASES)
def test_module(name, update):
    mode, keep_precision = CASES[name]
    module = Function(lambda m, x, w: serializedMatMul(x, w, mode, 2, keep_precision))
    operands = torch.zeros(4, 6).half(), torch.zeros(6, 8).half()
    program = translate(capture(module, operands, {}, training=False), StepSpec(training=False))
    program.module.verify()
    here = Path(__file__).parent
    check_golden(here / f"{name}.ir", program.module.text().replace(f"{here}/", ""), update)
