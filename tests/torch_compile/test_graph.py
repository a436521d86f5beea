"""Results of one graph of torch.compile."""

import pytest
import torch

from poptorch._torch_compile.graph import _formed


@pytest.mark.parametrize("traced, given, expected", [
    (torch.int64, torch.int32, torch.int64), (torch.float64, torch.float32, torch.float64),
    # torch traces the statistics of batch norm in bfloat16; eager computes them in float32.
    (torch.bfloat16, torch.float32, torch.float32)])
def test_only_narrowed_types_are_widened(traced, given, expected):
    assert _formed(torch.ones(2, dtype=given), traced, None).dtype is expected
