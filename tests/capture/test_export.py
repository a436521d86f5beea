"""Programs that torch.export made are captured through their module."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from poptorch._capture import capture
from poptorch._capture.library import ops
from tests.capture.common import check_inference, nodes

# torch.export's: about the list that recurrent modules keep, and about its own tree of arguments
pytestmark = [pytest.mark.filterwarnings("ignore:The tensor attributes"),
              pytest.mark.filterwarnings("ignore:.*LeafSpec")]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.lstm, self.gru = nn.LSTM(6, 5, batch_first=True), nn.GRU(5, 5)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("scale", torch.full((1,), 2.0))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, factor=2.0):
        self.calls += 1
        x = self.norm(self.conv(x)).mean(1)
        x = F.scaled_dot_product_attention(x, x, x)
        y, (h, c) = self.lstm(x)
        return {"y": self.dropout(self.gru(y)[0]) * self.scale * factor, "states": [h, c]}


@pytest.fixture
def program():
    net = Net().double().eval()
    return torch.export.export(net, (torch.randn(2, 1, 6, 8).double(),))


def test_an_exported_program_gives_the_same_numbers(program):
    captured = check_inference(program.module(), torch.randn(2, 1, 6, 8).double())
    for op in (ops.lstm, ops.gru, ops.attention, ops.batch_norm_inference):
        assert len(nodes(captured, op.default)) == 1, op
    assert {s.name for s in captured.outputs} >= {"y", "states.0", "states.1", "calls"}
    assert {s.name for s in captured.inputs if s.kind == "param"} >= {"conv.weight"}


def test_generated_code_is_no_place_of_the_user(program):
    captured = capture(program.module(), (torch.randn(2, 1, 6, 8).double(),), training=False)
    assert {n.meta["place"] for n in nodes(captured)} == {None}
