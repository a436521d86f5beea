"""Settings of the process while a module is compiled, and afterwards."""

import gc

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options


class Seeing(nn.Module):
    """Records whether cycles of references are collected while it runs."""

    def __init__(self, fails):
        super().__init__()
        self.fails, self.seen = fails, []

    def forward(self, x):
        self.seen.append(gc.isenabled())
        if self.fails:
            raise KeyError("mine")
        return x + 1


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("collects", [False, True])
def test_cycles_are_collected_after_compiling_as_before(fails, collects):
    module = Seeing(fails)
    model = poptorch.inferenceModel(module, quiet_options())
    try:
        if not collects:
            gc.disable()
        if fails:
            with pytest.raises(KeyError, match="mine"):
                model(torch.ones(2))
        else:
            assert model(torch.ones(2)).tolist() == [2.0, 2.0]
        assert gc.isenabled() == collects
    finally:
        gc.enable()
    assert not any(module.seen)
