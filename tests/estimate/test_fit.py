"""``poptorch.fit`` finds changes that make a model fit, and changes nothing itself."""

import pytest
import torch

import poptorch

F16 = torch.float16


def _stack(count: int, size: int) -> torch.nn.Sequential:
    return torch.nn.Sequential(*[torch.nn.Linear(size, size, dtype=F16, device="meta")
                                 for _ in range(count)])


class Trained(torch.nn.Module):
    def __init__(self, count: int, size: int):
        super().__init__()
        self.layers = _stack(count, size)

    def forward(self, x):
        return poptorch.identity_loss(self.layers(x).float().pow(2).mean(), "mean")


def _options() -> poptorch.Options:
    return poptorch.Options().showCompilationProgressBar(False)


def test_a_model_that_fits_needs_no_change():
    found = poptorch.fit(_stack(2, 256), _options(), torch.zeros(4, 256, dtype=F16))
    assert found.fits and found.changes == [] and found.blocks is None
    assert "no change" in repr(found)


def test_more_ipus_where_weights_alone_are_too_large():
    net, options = _stack(8, 8192), _options().deviceIterations(4)
    before, x = poptorch.module_repr(net), torch.zeros(16, 8192, dtype=F16)
    assert not poptorch.estimate(net, options, x).fits
    found = poptorch.fit(net, options, x)
    assert found.fits and len(found.changes) == 1 and set(found.blocks.values()) == {1}
    assert poptorch.module_repr(net) == before and options.device_iterations == 4
    assert "setExecutionStrategy" in repr(found) and "cycles" in repr(found)
    # What the result says holds once it is applied.
    found.apply(net)
    again = poptorch.estimate(net, found.options, x)
    assert again.fits and again.cycles == found.report.cycles
    assert found.changes[0].cycles == pytest.approx(
        again.cycles - poptorch.estimate(_stack(8, 8192), options, x).cycles)


def test_training_with_states_that_are_too_large():
    net = Trained(4, 6144)
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.zeros(8, 6144, dtype=F16)
    found = poptorch.fit(net, _options(), x, optimizer=optimizer)
    assert found.fits and found.changes and not optimizer.state
    assert found.report.fits and found.report.cycles > 0


def test_blocks_of_the_model_come_back():
    net = _stack(8, 8192)
    poptorch.BeginBlock(net[2], "mine", ipu_id=0)
    before = poptorch.module_repr(net)
    found = poptorch.fit(net, _options().deviceIterations(4), torch.zeros(16, 8192, dtype=F16))
    assert found.fits and poptorch.module_repr(net) == before


def test_nothing_helps():
    class Wide(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(30000, 20000, dtype=F16, device="meta"))

        def forward(self, x):
            return x @ self.weight

    found = poptorch.fit(Wide(), _options(), torch.zeros(1, 30000, dtype=F16))
    assert not found.fits and not found.report.fits
    assert "does not fit" in repr(found)
    assert "largest contributor: weight, parameters" in repr(found)
