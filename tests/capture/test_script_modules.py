"""Modules of TorchScript within a model: they are no clones, and stay as they were."""

import pytest
import torch
from torch import nn

import poptorch
from poptorch._base.torch_private import fake_tensors
from poptorch._capture import capture
from tests.capture.common import Function
from tests.helpers import quiet_options

pytestmark = [pytest.mark.filterwarnings("ignore:`torch.jit.*` is deprecated"),
              pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")]


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.full((4,), 0.5))
        self.register_buffer("b", torch.ones(4))
        self.act = nn.Tanh()

    def forward(self, x):
        return self.act(x * self.w + self.b)


MAKE = {
    "script": lambda: torch.jit.script(Part().eval()),
    "trace": lambda: torch.jit.trace(Part().eval(), torch.zeros(3, 4)),
}


def around(part):
    module = Function(lambda m, x: m.part(x) * m.w, {"w": torch.full((4,), 2.0)})
    module.part = part
    return module.eval()


def check_is_as_before(part):
    assert isinstance(part.w, nn.Parameter)
    assert not any(fake_tensors.is_fake(tensor) for tensor in (part.w, part.b))
    assert not part.training and not part.act.training


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("wrap", [around, lambda part: part], ids=["inner", "outer"])
def test_inference(kind, wrap):
    part, x = MAKE[kind](), torch.rand(3, 4)
    module = wrap(part)
    expected = module(x).detach()
    model = poptorch.inferenceModel(module, quiet_options())
    for _ in range(2):
        torch.testing.assert_close(model(x), expected)
    check_is_as_before(part)
    assert torch.equal(module(x).detach(), expected)


@pytest.mark.parametrize("kind", MAKE)
def test_training(kind):
    ours, eager = [around(MAKE[kind]()) for _ in range(2)]
    x = torch.rand(3, 4)
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        eager(x).pow(2).mean().backward()
        optimizer.step()
    whole = Function(lambda m, x: poptorch.identity_loss(m.net(x).pow(2), "mean"))
    whole.net = ours
    model = poptorch.trainingModel(whole.eval(), quiet_options(), optimizer=poptorch.optim.SGD(
        whole.parameters(), lr=0.1))
    losses = [model(x).item() for _ in range(2)]
    assert losses[1] < losses[0]
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)
    check_is_as_before(ours.part)


def test_after_an_error():
    part = MAKE["script"]()
    module = around(part)
    with pytest.raises(poptorch.Error):
        capture(module, (torch.rand(3, 5),), training=False, mode_of=lambda module: True)
    check_is_as_before(part)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(self.linear(x)).relu()


class Loss(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        y = self.net(x)
        return y, poptorch.identity_loss((y - 0.5).pow(2), "mean")


X = torch.linspace(-1, 1, 20).view(5, 4).sin()
OF_NORM = {
    "script": lambda: Loss(torch.jit.script(made())),
    "trace": lambda: Loss(torch.jit.trace(made(), X)),
}


def made(kind=Norm):
    torch.manual_seed(0)
    return kind()


@pytest.mark.parametrize("kind", OF_NORM)
def test_training_of_batch_norm(kind):
    ours, eager = OF_NORM[kind](), Loss(made())
    eager.load_state_dict(ours.state_dict())  # tracing runs forward once
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    model = poptorch.trainingModel(ours, quiet_options(), poptorch.optim.SGD(
        ours.parameters(), lr=0.1))
    for _ in range(3):
        optimizer.zero_grad()
        y, loss = eager(X)
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(model(X)[0], y)
    torch.testing.assert_close(ours.state_dict(), eager.state_dict(), check_dtype=False)


@pytest.mark.parametrize("make", [
    lambda: torch.jit.trace(Loss(made()), X), lambda: torch.jit.script(made())],
    ids=["trace", "script"])
def test_a_loss_inside_is_not_seen(make):
    module = make()
    kind = type(module)
    with pytest.raises(poptorch.Error, match="A loss inside a torch.jit module is not found: "):
        poptorch.trainingModel(module, quiet_options())(X)
    module.destroy()
    assert type(module) is kind
    assert module(X)[0].shape in ((5, 3), (3,))


def test_frozen():
    frozen = torch.jit.freeze(torch.jit.script(Part().eval()))
    for module in (frozen, nn.Sequential(frozen)):
        model = poptorch.inferenceModel(module, quiet_options())
        torch.testing.assert_close(model(X), frozen(X))


TRACED = {
    "product": lambda x: x * 2,
    "product of a float": lambda x: x * 0.5,
    "sum": lambda x: x + 1,
    "two products": lambda x: x * 2 * 3,
    "what is computed of numbers": lambda x: (x + 1) * 1 + 0,
    "half": lambda x: x.half() * 0.1,
    "bool": lambda x: (x > 0) * 2,
}


@pytest.mark.parametrize("name", TRACED)
def test_numbers_of_traced_programs(name):
    """That have not run before, when TorchScript looks at their constants."""
    module = torch.jit.trace(Function(lambda m, x: TRACED[name](x)), X, check_trace=False)
    for _ in range(2):
        torch.testing.assert_close(poptorch.inferenceModel(module, quiet_options())(X), module(X),
                                   check_dtype=name != "bool")  # int64 is int32 on the device
