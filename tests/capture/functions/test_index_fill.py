"""``index_fill`` with a tensor that has a gradient."""

import torch

import poptorch
from poptorch import testing
from tests.helpers import check_narrow, quiet_options


class Filled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.x = torch.nn.Parameter(torch.randn(3, 4))
        self.value = torch.nn.Parameter(torch.tensor(0.5))

    def forward(self, index):
        out = self.x.index_fill(-1, index, self.value)
        out = torch.index_fill(out, 0, index[:1] - 1, self.value * 2)
        out = out * self.x[0, 0].index_fill(0, index[1:2], self.value + 1)
        weights = torch.arange(12, dtype=out.dtype).view(3, 4)
        return out, poptorch.identity_loss((out * weights).sum(), "none")


def test_the_gradient_of_the_value(seed):
    net, index = Filled(), torch.tensor([2, 0, 2])
    with testing.keep_gradients():
        model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 0.0))
        out, _ = model(index)
        found = testing.gradients(model)
    runs = []
    for dtype in (torch.float32, torch.float64):
        eager = Filled().to(dtype)
        eager.load_state_dict(net.state_dict())
        expected, loss = eager(index)
        loss.backward()
        runs.append([expected.detach(), eager.x.grad, eager.value.grad])
    check_narrow([out, found["x"], found["value"]], runs[:1], runs[1])
