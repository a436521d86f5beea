"""Weight updates on numbers that the samples do not have."""

import pytest
import torch

from tests.ops.sample import evaluate
from tests.ops.samples.optimizer import USUAL, adam, sgd


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("case", [sgd((0.1, 0.9, 0.0, 0.0)), adam(USUAL)], ids=lambda case: case.op)
def test_infinite_weights_that_do_not_decay(case):
    """They stay as they are in torch.optim, which multiplies no weight by a decay of zero."""
    operands = case.operands()
    operands[0][3, 5] = torch.inf
    results = evaluate(case, operands)
    for ours, expected in zip(results, case.reference(*operands), strict=True):
        torch.testing.assert_close(ours, expected)
    assert results[0][3, 5] == torch.inf
