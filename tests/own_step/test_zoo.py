"""Optimizers that PyTorch lacks train as in eager mode."""

import pytest

from poptorch.testing import wide
from tests.own_step import zoo
from tests.own_step.common import Beside, options


@pytest.mark.sampled
@pytest.mark.parametrize("kind", zoo.ALL)
def test_twenty_updates_are_those_of_eager_mode(kind):
    with wide():
        both = Beside(lambda params: zoo.ALL[kind](params), options(4, 2))
        for step in range(20):
            both.train()
            if step == 8:  # as a scheduler does; nothing is compiled for it
                programs = len(both.model.programs())
                for optimizer in (both.optimizer, both.reference):
                    optimizer.param_groups[0]["lr"] *= 0.5
        both.check()
        both.check_states()
        assert len(both.model.programs()) == programs == 1
