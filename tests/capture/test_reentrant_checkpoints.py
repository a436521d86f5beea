"""torch.utils.checkpoint in its default form recomputes as with ``use_reentrant=False``."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import poptorch
from tests.helpers import quiet_options

pytestmark = [pytest.mark.filterwarnings("ignore:torch.utils.checkpoint"),
              pytest.mark.filterwarnings("ignore:None of the inputs")]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.of_input = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(4, 6)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh()) for _ in range(4))

    def forward(self, x, target):
        y, z = checkpoint(self._pair, self.first(x), 3, use_reentrant=True)
        y = checkpoint(self.blocks[0], y) + z
        y = checkpoint_sequential(self.blocks[1:], 2, y, use_reentrant=True)
        y = y + checkpoint(self.of_input, x, use_reentrant=True)
        scores = self.last(y)
        return scores, nn.functional.cross_entropy(scores, target)

    def _pair(self, x, times):
        return torch.tanh(x) * times, checkpoint(torch.sin, x, use_reentrant=True)


def test_training_as_in_eager():
    module = Net()
    eager = copy.deepcopy(module)
    settings = {"lr": 0.1, "momentum": 0.9}
    model = poptorch.trainingModel(module, quiet_options(),
                                   torch.optim.SGD(module.parameters(), **settings))
    optimizer = torch.optim.SGD(eager.parameters(), **settings)
    for _ in range(3):
        x, target = torch.randn(5, 4), torch.randint(0, 3, (5,))
        optimizer.zero_grad()
        expected = eager(x, target)
        expected[1].backward()
        optimizer.step()
        torch.testing.assert_close(model(x, target), expected, rtol=1e-4, atol=1e-5)
    # In eager what is checkpointed of an argument has no gradient at all.
    assert torch.equal(module.of_input.weight, eager.of_input.weight)
    torch.testing.assert_close(module.state_dict(), eager.state_dict(), rtol=1e-4, atol=1e-5)
    assert model.ir("translate").count("recompute=") > 0


@pytest.mark.parametrize("used", [0, 1])
def test_results_without_a_gradient_have_zeros(used):
    """All results are one node of autograd: a weight of an unused one decays, as in eager."""
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (nn.Parameter(torch.rand(4)) for _ in range(2))

        def forward(self, x):
            found = checkpoint(lambda a, b: (a * x, 3, b * x), self.first, self.second,
                               use_reentrant=True)
            out = found[2 * used]
            out.mul_(2)
            return poptorch.identity_loss(out.sum() * found[1], "none")

    module = Pair()
    eager = copy.deepcopy(module)
    settings = {"lr": 0.1, "weight_decay": 0.5}
    model = poptorch.trainingModel(module, quiet_options(),
                                   torch.optim.SGD(module.parameters(), **settings))
    model(torch.ones(4))
    eager(torch.ones(4)).backward()
    torch.optim.SGD(eager.parameters(), **settings).step()
    torch.testing.assert_close(module.state_dict(), eager.state_dict())
