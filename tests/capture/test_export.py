"""Programs that torch.export made are captured through their module."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from poptorch._capture import capture
from poptorch._capture.library.layers import ops
from tests.capture.common import check_inference, check_training, nodes

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


class Changes(nn.Module):
    """What the signature of an exported program tells apart."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.plain = torch.full((4,), 3.0).double()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("left_out", torch.ones(4), persistent=False)

    def forward(self, x, target, start):
        self.calls += 1
        start.add_(x)
        with torch.no_grad():
            shift = self.fc(x) * self.left_out
        with torch.autocast("cpu", enabled=False):
            y = F.dropout(self.fc(start), 0.25, self.training)
        y = y + self.plain + torch.tensor([1.0, 2.0, 3.0, 4.0]).double() + shift
        return y, F.mse_loss(y, target)


def exported():
    args = [torch.randn(2, 4).double() for _ in range(3)]
    return torch.export.export(Changes().double().eval(), tuple(args)), args


def test_changes_and_constants_of_an_exported_program():
    program, args = exported()
    captured = check_inference(program.module(), *args)
    assert [spec.kind for spec in captured.outputs] == [
        "output", "output", "input_update", "buffer_update"]
    assert sorted(spec.kind for spec in captured.inputs) == [
        *["buffer"] * 2, *["constant"] * 2, *["input"] * 3, *["param"] * 2]


def test_the_gradients_of_an_exported_program():
    program, args = exported()
    captured = check_training(program.module(), *args)
    assert {spec.name for spec in captured.outputs if spec.kind == "grad"} == {
        "fc.weight", "fc.bias"}


def test_an_exported_module_is_trained():
    program, (x, target, start) = exported()
    module = program.module()
    eager = copy.deepcopy(module)
    model = poptorch.trainingModel(module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    for _ in range(3):
        _, loss = model(x, target, start.clone())
        optimizer.zero_grad()
        _, expected = eager(x, target, start.clone())
        expected.backward()
        optimizer.step()
    torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(module.fc.weight, eager.fc.weight, rtol=1e-5, atol=1e-5)
    assert module.calls == 3


@pytest.mark.parametrize("loss", [
    lambda x, t: F.cross_entropy(x, t), lambda x, t: F.nll_loss(x.log_softmax(1), t),
    lambda x, t: F.l1_loss(x, t[:, None].expand(2, 4).double()),
    lambda x, t: F.binary_cross_entropy_with_logits(x, x.detach().sigmoid(), reduction="sum")])
def test_losses_of_an_exported_program_mark_themselves(loss):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4).double()

        def forward(self, x, target):
            return loss(self.fc(x), target),

    args = torch.randn(2, 4).double(), torch.tensor([1, 3])
    check_training(torch.export.export(Net(), args).module(), *args)


def test_an_exported_loss_that_is_not_reduced_is_no_loss():
    class Net(nn.Module):
        def forward(self, x):
            return F.mse_loss(x, x + 1, reduction="none")

    x = torch.randn(2)
    with pytest.raises(poptorch.Error, match="the mse_loss of an unknown place does not reduce"):
        capture(torch.export.export(Net(), (x,)).module(), (x,), training=True)
