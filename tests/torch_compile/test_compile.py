"""poptorch.compile: modules and functions inside eager programs."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import check_equal_bits, check_narrow, quiet_options
from tests.torch_compile.common import Net, batch, check_steps, compiled, to_wide


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_steps_are_those_of_eager(optimizer):
    net = Net()
    eager = copy.deepcopy(net)
    batches = [batch(rows) for rows in (4, 4, 3, 5, 2)]  # smaller and larger batches
    # The eager copies are made of the same state: a copy is not compiled.
    check_steps(eager, compiled(net), batches, lambda p: optimizer(p, lr=0.01))
    assert net.norm.num_batches_tracked == 5


def test_modes_select_batch_statistics():
    net = Net()
    eager = copy.deepcopy(net)
    assert compiled(net) is net
    for mode in (True, False, True):
        x = batch()
        net.train(mode), eager.train(mode)
        with torch.no_grad():
            wide = to_wide(eager)(x.double())
            check_narrow(net(x), [eager(x)], wide)
        assert not net(x)["out"].requires_grad or torch.is_grad_enabled()
        eager.load_state_dict(net.state_dict())


def test_no_grad_is_inference():
    net = compiled(nn.Linear(3, 2))
    with torch.no_grad():
        assert net(torch.ones(1, 3)).grad_fn is None
    assert net(torch.ones(1, 3)).grad_fn is not None
    net.requires_grad_(False)
    assert not net(torch.ones(1, 3)).requires_grad


def test_a_module_stays_a_module():
    eager = nn.Linear(3, 2)
    net = copy.deepcopy(eager)
    parameters = list(net.parameters())
    outer = nn.Sequential(compiled(net), nn.Tanh(), nn.Linear(2, 1))
    assert list(outer.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert all(a is b for a, b in zip(net.parameters(), parameters))
    net.load_state_dict(eager.state_dict())
    x = torch.randn(4, 3)
    outer(x).sum().backward()
    expected = nn.Sequential(eager, *copy.deepcopy(outer[1:]))
    expected(x).sum().backward()
    torch.testing.assert_close(net.weight.grad, eager.weight.grad)
    with torch.no_grad():
        net.weight.zero_()  # the host's tensors are the program's
    torch.testing.assert_close(net(x), eager.bias.expand(4, 2))


def test_hooks():
    net, x = nn.Linear(3, 2), torch.randn(4, 3)
    expected = net(x) + 1
    net.register_forward_hook(lambda module, args, result: result + 1)
    torch.testing.assert_close(compiled(net)(x), expected)


def test_modules_of_torch_are_compiled():
    programs = []
    poptorch.registerPostCompileHook(lambda: programs.append(1))
    for size in range(1, 11):  # each has a limit of its own
        compiled(nn.Linear(size, 1))(torch.ones(1, size))
    assert len(programs) == 10


def test_dropout_draws_new_numbers():
    net = compiled(nn.Dropout(0.5))
    x = torch.ones(1000, requires_grad=True)
    seen = []
    for _ in range(3):
        y = net(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        check_equal_bits(gradient, y)  # forward and backward have the same mask
        assert 350 < (y != 0).sum() < 650
        seen.append(y.detach())
    assert not torch.equal(seen[0], seen[1]) and not torch.equal(seen[1], seen[2])
    net.eval()
    check_equal_bits(net(x), x)


def test_functions():
    def function(x, y, *, k=2.0):
        return x * y.sin() * k, [y.argmax(), None], {"rows": x.shape[0]}

    run = compiled(function)
    for rows in (2, 3, 4):
        x, y = torch.randn(rows, requires_grad=True), torch.randn(rows)
        product, (place, nothing), sizes = run(x, y, k=3.0)
        expected = function(x, y, k=3.0)
        torch.testing.assert_close((product, place), (expected[0], expected[1][0]))
        assert nothing is None and sizes == {"rows": rows} and place.dtype == torch.int64
        torch.testing.assert_close(torch.autograd.grad(product.sum(), x)[0], y.sin() * 3)
    assert run(torch.ones(2, dtype=torch.float64), torch.ones(2))[0].dtype == torch.float64


def test_views_rely_on_strides():
    conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    def function(x):
        y = conv(x)
        return y.permute(0, 2, 3, 1), y[:, 1], y

    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last).requires_grad_()
    for ours, expected in zip(compiled(function)(x), function(x), strict=True):
        torch.testing.assert_close(ours, expected)
        assert ours.stride() == expected.stride()


def test_changes_in_place():
    def function(x):
        x.add_(1)
        return x * 2

    x = torch.zeros(3)
    assert compiled(function)(x).tolist() == [2, 2, 2] and x.tolist() == [1, 1, 1]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_graph_break():
    def function(x):
        y = x.sin()
        if y.sum().item() > 0:
            return y * 2
        return y * 3

    run = compiled(function)
    for value in (1.0, -1.0):
        x = torch.full((3,), value, requires_grad=True)
        run(x).sum().backward()
        torch.testing.assert_close(x.grad, x.detach().cos() * (2 if value > 0 else 3))


def test_attention_and_autocast():
    net = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    eager = copy.deepcopy(net)
    x = torch.randn(2, 5, 8)
    ours, expected = compiled(net)(x), eager(x)
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)
    ours.square().mean().backward(), expected.square().mean().backward()
    for a, b in zip(net.parameters(), eager.parameters()):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(nn.Linear(3, 2))(torch.ones(1, 3)).dtype == torch.bfloat16


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return nn.functional.mse_loss(self.fc(x), x[:, :1])


def test_beside_executors():
    net, x = compiled(Loss()), torch.randn(4, 3)
    before = net(x)
    torch.testing.assert_close(poptorch.inferenceModel(net, quiet_options())(x), before.detach())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    torch.testing.assert_close(model(x), before.detach())
    with pytest.raises(poptorch.Error, match=r"\[compile\] cannot run the compiled Loss: .*Call "
                                             r"destroy\(\) on the training model first"):
        net(x)
    model.destroy()
    torch.testing.assert_close(net(x), copy.deepcopy(net)(x))
    assert net(x) < before


@pytest.mark.parametrize("change, name", [
    (lambda o: o.deviceIterations(2), "deviceIterations"),
    (lambda o: o.replicationFactor(2), "replicationFactor"),
    (lambda o: o.Training.gradientAccumulation(2), "gradientAccumulation")])
def test_options_that_split_a_batch(change, name):
    options = quiet_options()
    change(options)
    with pytest.raises(poptorch.Error, match=rf"\[compile\] expected {name}\(1\), got {name}\(2\)"):
        poptorch.compile(nn.Linear(2, 2), options)


@pytest.mark.parametrize("thing", [3, None, "net"])
def test_only_modules_and_functions(thing):
    with pytest.raises(TypeError, match=r"\[compile\] expected a torch.nn.Module or a function, "
                                        f"got {type(thing).__name__}"):
        poptorch.compile(thing)


def test_executors_are_refused():
    executor = poptorch.inferenceModel(nn.Linear(2, 2), quiet_options())
    with pytest.raises(TypeError, match="got PoplarExecutor"):
        poptorch.compile(executor)


def test_unsupported_operations_name_the_line():
    run = compiled(lambda x: x.to(torch.float8_e4m3fn).float() + 1)
    with pytest.raises(poptorch.Error, match="test_compile.py:"):
        run(torch.ones(4))
