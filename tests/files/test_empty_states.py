"""Parameters without elements, whose optimizer states only the device has."""

import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.empty = nn.Linear(3, 2), nn.Parameter(torch.zeros(2, 0).half())

    def forward(self, x):
        y = self.fc(x)
        return y, poptorch.identity_loss(y.sum() + self.empty.float().sum(), "sum")


def test_a_parameter_without_elements(tmp_path):
    net = Net()
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    x = torch.randn(2, 3)
    model(x)
    model.save(str(tmp_path / "net.poptorch"))
    loaded = poptorch.load(str(tmp_path / "net.poptorch"))
    for _ in range(2):
        torch.testing.assert_close(loaded(x), model(x), rtol=0, atol=0)
