"""Operators of torch.library in wrapped models: gradients, several results, memory."""

import numpy as np
import pytest
import torch

import poptorch
from tests.helpers import Applied, quiet_options

pages = []
calls = []


@torch.library.custom_op("poptorch_test_lib::cube", mutates_args=())
def cube(x: torch.Tensor, factor: float) -> torch.Tensor:
    """With NumPy, in new memory that it keeps."""
    calls.append(x.clone())
    pages.append(torch.from_numpy(np.asarray(x.float()) ** 3 * factor).to(x.dtype))
    return pages[-1].clone()


@cube.register_fake
def _(x, factor):
    return torch.empty_like(x)


def keep_input(ctx, inputs, output):
    """What the gradient of cube needs."""
    x, ctx.factor = inputs
    ctx.save_for_backward(x)


def cube_gradient(ctx, gradient):
    """The gradient of cube, of operations that are captured."""
    (x,) = ctx.saved_tensors
    return gradient * 3 * x * x * ctx.factor, None


cube.register_autograd(cube_gradient, setup_context=keep_input)


@torch.library.custom_op("poptorch_test_lib::halves", mutates_args=())
def halves(parts: list[torch.Tensor], count: int) -> list[torch.Tensor]:
    """Several tensors in, several out, one of them int64."""
    return [torch.stack(parts).sum(0) / count, torch.tensor([len(parts)])]


@halves.register_fake
def _(parts, count):
    return [torch.empty_like(parts[0]), torch.empty(1, dtype=torch.int64)]


@torch.library.custom_op("poptorch_test_lib::filled", mutates_args={"x"})
def filled(x: torch.Tensor, value: float) -> None:
    """Changes its argument."""
    x.fill_(value)


@filled.register_fake
def _(x, value):
    return None


@pytest.fixture(autouse=True)
def fresh():
    pages.clear()
    calls.clear()


class Net(torch.nn.Module):
    """Cubes of a layer's results, with much memory used before and after."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(5)
        self.layer = torch.nn.Linear(8, 8)
        self.function = function

    def forward(self, x):
        y = torch.relu(self.layer(x))
        y = self.function(y, 0.5) + torch.tanh(self.function(y * 0.5, 2.0))
        return y, poptorch.identity_loss(torch.log1p(y * y), "sum")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training(dtype):
    nets = [Net(function).to(dtype) for function in (cube, lambda x, f: x * x * x * f)]
    x = torch.randn(4, 8).to(dtype)
    model = poptorch.trainingModel(
        nets[0], quiet_options(), torch.optim.SGD(nets[0].parameters(), lr=0.01))
    out = [model(x)[0] for _ in range(2)]
    assert [tuple(call.shape) for call in calls] == [(4, 8)] * 4
    assert all(call.any() for call in calls)  # never called on zeros
    optimizer = torch.optim.SGD(nets[1].parameters(), lr=0.01)
    rtol = 1e-5 if dtype is torch.float32 else 5e-2
    for found in out:
        optimizer.zero_grad()
        expected, loss = nets[1](x)
        torch.testing.assert_close(found, expected.detach(), rtol=rtol, atol=rtol)
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(nets[0].layer.weight.detach(), nets[1].layer.weight.detach(),
                               rtol=rtol, atol=rtol)
    model.destroy()


def test_what_it_allocates_is_not_overwritten():
    torch.manual_seed(7)
    net = Net(cube)
    model = poptorch.inferenceModel(net, quiet_options())
    x = torch.randn(4, 8)
    model(x)
    kept = [page.clone() for page in pages]
    for _ in range(3):
        model(torch.randn(4, 8))
    model.destroy()
    assert all(torch.equal(*pair) for pair in zip(kept, pages))
    with torch.no_grad():
        y = torch.relu(net.layer(x))
    torch.testing.assert_close(kept[0], y ** 3 * 0.5)


def test_lists_of_tensors():
    model = poptorch.inferenceModel(Applied(lambda a, b: halves([a, b, a], 2)), quiet_options())
    mean, count = model(torch.ones(3), torch.full((3,), 2.0))
    assert mean.tolist() == [2.0] * 3 and count.tolist() == [3]
    model.destroy()


def test_one_that_changes_its_argument():
    def forward(x):
        y = x * 1
        filled(y[1:], 7.0)
        return y

    model = poptorch.inferenceModel(Applied(forward), quiet_options())
    for _ in range(2):
        assert model(torch.ones(3)).tolist() == [1.0, 7.0, 7.0]
    model.destroy()


@torch.library.custom_op("poptorch_test_lib::swapped", mutates_args={"a", "b"})
def swapped(a: torch.Tensor, factor: int, b: torch.Tensor) -> None:
    """Changes two arguments, one of them int64."""
    a_before = a.clone()
    a.copy_(b)
    b.copy_(a_before * factor)
    pages.append(a)


swapped.register_fake(lambda a, factor, b: None)


def test_one_that_changes_an_input_and_a_buffer():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.tensor([1, 2]))

        def forward(self, x):
            swapped(x, 10, self.b)
            return x + self.b

    model = poptorch.inferenceModel(Net(), quiet_options())
    x = torch.tensor([3, 4])
    assert model(x).tolist() == [31, 42] and x.tolist() == [1, 2]
    kept = [page.clone() for page in pages]
    assert model(x).tolist() == [40, 60] and x.tolist() == [30, 40]
    model.copyWeightsToHost()
    assert model.b.tolist() == [10, 20]
    assert all(torch.equal(*pair) for pair in zip(kept, pages))
    model.destroy()


def test_one_that_changes_its_argument_and_returns():
    @torch.library.custom_op("poptorch_test_lib::both", mutates_args={"x"})
    def both(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1).clone()

    both.register_fake(torch.empty_like)
    model = poptorch.inferenceModel(Applied(lambda x: both(x * 1)), quiet_options())
    with pytest.raises(poptorch.Error, match="both.* changes tensors in place and has no"):
        model(torch.ones(3))
    model.destroy()


def test_without_a_rule_for_shapes():
    @torch.library.custom_op("poptorch_test_lib::unknown", mutates_args=())
    def unknown(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    model = poptorch.inferenceModel(Applied(lambda x: unknown(x)), quiet_options())
    with pytest.raises(poptorch.Error, match=r"unknown.*register_fake") as caught:
        model(torch.ones(3))
    assert "test_torch_library.py" in caught.value.location
    model.destroy()


def test_without_a_gradient():
    @torch.library.custom_op("poptorch_test_lib::blocked", mutates_args=())
    def blocked(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    blocked.register_fake(torch.empty_like)
    net = Net(lambda x, f: blocked(x) * f)
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.1))
    with pytest.raises(poptorch.Error, match="blocked"):
        model(torch.ones(4, 8))
    model.destroy()
