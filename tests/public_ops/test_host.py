"""CPU: functions of the host within a program, forward and backward; errors."""

import copy
import gc

import pytest
import torch

import poptorch
from poptorch.ops import host_sites
from tests.helpers import quiet_options


class Net(torch.nn.Module):
    """Two layers with a function of the host between them, called twice."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
        self.register_buffer("shift", torch.tensor(0.5))
        self.seen = []
        self.host = poptorch.CPU(self.chosen, "chosen")
        self.other = poptorch.CPU(torch.nn.Softplus(), "softplus")

    def chosen(self, x, factor):
        assert x.device.type == "cpu" and not poptorch.isRunningOnIpu()
        self.seen.append(type(x))
        if x.sum() > 0:  # no compiled program could
            return x.sin() * factor + self.shift
        return x.cos() * factor

    def forward(self, x):
        h = self.host(self.first(x), factor=2)
        h = self.other(self.host(h, 3.0))
        out = self.last(h)
        return out, poptorch.identity_loss(out.pow(2).mean(), "none")


def trained(net, **options):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    return poptorch.trainingModel(net, quiet_options(**options), optimizer)


def test_training_as_eager():
    net = Net()
    eager = copy.deepcopy(net)
    ours, optimizer = trained(net), torch.optim.SGD(eager.parameters(), lr=0.05)
    for _ in range(4):
        x = torch.randn(5, 3)
        expected = eager(x)
        optimizer.zero_grad()
        expected[1].backward()
        optimizer.step()
        torch.testing.assert_close(ours(x), expected)
    ours.copyWeightsToHost()
    torch.testing.assert_close(dict(net.named_parameters()), dict(eager.named_parameters()))
    assert net.seen.count(torch.Tensor) >= len(eager.seen) == 8


def test_iterations_accumulation_and_replicas():
    net = Net()
    eager = copy.deepcopy(net)
    ours = trained(net, deviceIterations=2, replicationFactor=2, Training__gradientAccumulation=2,
                   outputMode=poptorch.OutputMode.All)
    x = torch.randn(16, 3)
    found, _ = ours(x)
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.05)
    for step in range(2):
        optimizer.zero_grad()
        for part in range(4):
            rows = slice(2 * (4 * step + part), 2 * (4 * step + part) + 2)
            out, loss = eager(x[rows])
            torch.testing.assert_close(found[rows], out)
            (loss / 4).backward()
        optimizer.step()
    ours.copyWeightsToHost()
    torch.testing.assert_close(dict(net.named_parameters()), dict(eager.named_parameters()))


def test_inference():
    net = Net().eval()
    model = poptorch.inferenceModel(net, quiet_options(deviceIterations=2))
    for _ in range(3):
        x = torch.randn(4, 3)
        expected = [net(part)[0] for part in x.split(2)]
        torch.testing.assert_close(model(x)[0], torch.cat(expected))


def test_parameters_of_the_host():
    """Their gradients are those of eager, and a host optimizer may train them."""
    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(3, 3)
            self.host = poptorch.CPU(HOST, "host")

        def forward(self, x):
            return poptorch.identity_loss(self.host(self.fc(x)).pow(2).sum(), "none")

    HOST = torch.nn.Linear(3, 2)
    net = Outer()
    eager = copy.deepcopy(net)
    model, x = trained(net), torch.randn(4, 3)
    loss = model(x)
    expected = eager(x)
    expected.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(HOST.weight.grad, eager.host.layer_to_call.weight.grad)
    with torch.no_grad():
        HOST.weight.zero_()  # seen in the next call
        HOST.bias.zero_()
    assert model(x) == 0


def test_a_parameter_as_an_argument():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor([2.0]))
            self.host = poptorch.CPU(lambda x, scale: x * scale, "scale")

        def forward(self, x):
            return poptorch.identity_loss(self.host(x, self.scale).sum(), "none")

    net = Scaled()
    model = trained(net)
    for _ in range(3):
        model(torch.ones(2))
    model.copyWeightsToHost()
    torch.testing.assert_close(net.scale.detach(), torch.tensor([2 - 3 * 0.05 * 2]))


def test_results_without_gradients():
    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(3, 3)
            self.host = poptorch.CPU(self.split, "split")

        def split(self, x):
            return x * 2, x.detach().numpy().argmax(1) * torch.ones(1), x.argmax(1), x.detach()

        def forward(self, x):
            twice, _, place, same = self.host(self.fc(x))
            with torch.no_grad():
                unseen, *_ = self.host(twice)
            return place, unseen, poptorch.identity_loss((twice * same + unseen).sum(), "none")

    Mixed.split = lambda self, x: (x * 2, torch.ones(1), x.argmax(1), x.detach())
    net = Mixed()
    eager = copy.deepcopy(net)
    model, x = trained(net), torch.randn(4, 3)
    expected = eager(x)
    expected[2].backward()
    found = model(x)
    torch.testing.assert_close(found, expected, check_dtype=False)
    model.copyWeightsToHost()
    with torch.no_grad():
        for parameter in eager.parameters():
            parameter -= 0.05 * parameter.grad
    torch.testing.assert_close(dict(net.named_parameters()), dict(eager.named_parameters()))


def test_within_a_checkpoint():
    class Checked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(3, 3)
            self.calls = 0
            self.host = poptorch.CPU(self.sine, "sine")

        def sine(self, x):
            self.calls += 1
            return x.sin()

        def part(self, x):
            return self.host(self.fc(x))

        def forward(self, x):
            y = torch.utils.checkpoint.checkpoint(self.part, x, use_reentrant=False)
            return poptorch.identity_loss((y * y).sum(), "none")

    net = Checked()
    eager = copy.deepcopy(net)
    model, x = trained(net), torch.randn(4, 3)
    for _ in range(2):
        found = model(x)
    for _ in range(2):
        eager.zero_grad()
        expected = eager(x)
        expected.backward()
        with torch.no_grad():
            for parameter in eager.parameters():
                parameter -= 0.05 * parameter.grad
    torch.testing.assert_close(found, expected)
    model.copyWeightsToHost()
    torch.testing.assert_close(net.fc.weight, eager.fc.weight)


def test_what_runs_is_let_go():
    def run():
        trained(Net())(torch.randn(2, 3))
        sites = list(host_sites._sites.values())
        assert sites and not any(getattr(site, "_kept", None) for site in sites)
        return [site.number for site in sites]

    numbers = run()
    for _ in range(2):  # the second one collects what nodes of autograd have referred to
        gc.collect()
    assert not set(numbers) & set(host_sites._sites)


def test_functions_of_poptorch_inside():
    class Inner(torch.nn.Module):
        def forward(self, x, start):
            return poptorch.CPU(lambda x, i: poptorch.dynamic_slice(x, 0, i, 2, 1), "s")(x, start)

    model = poptorch.inferenceModel(Inner(), quiet_options())
    assert model(torch.arange(4.0), torch.tensor([2])).tolist() == [2, 3]


def test_it_runs_in_each_call():
    """Also where its arguments never change."""
    drawn = iter(range(100))

    class Counted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("zero", torch.zeros(1))
            self.count = poptorch.CPU(lambda zero: zero + next(drawn), "count")

        def forward(self, x):
            return x + self.count(self.zero), x + self.count(self.zero)

    model = poptorch.inferenceModel(Counted(), quiet_options())
    first, second, third = (model(torch.zeros(1)) for _ in range(3))
    values = [part.item() for part in (*first, *second, *third)]
    assert values == [values[0] + i for i in range(6)]


def test_kept_data():
    class Kept(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.host = poptorch.CPU(lambda x, by: x * by, "times")

        def forward(self, x):
            return self.host(x + 1, by=2)

    net = Kept()
    model = poptorch.inferenceModel(net, quiet_options())
    with pytest.raises(poptorch.Error, match=r"\[CPU\] no call of 'times' was kept"):
        net.host.execute()
    model(torch.ones(1))
    assert net.host.inputs is None
    net.host.registerPersistentData()
    model(torch.ones(1))
    assert net.host.inputs[0][0].tolist() == [2] and net.host.inputs[1] == {"by": 2}
    assert net.host.outputs.tolist() == [4]
    net.host.inputs[0][0].fill_(5)
    assert net.host.execute().tolist() == [10] and net.host.outputs.tolist() == [10]
    assert model(torch.ones(1)).tolist() == [4]


@pytest.mark.parametrize("training", [False, True])
def test_an_error_of_the_function(training):
    class Mine(Exception):
        pass

    class Failing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(2))
            self.host = poptorch.CPU(self.check, "check")

        def check(self, x):
            if x.sum() > 100:
                raise Mine("too much")
            return x * 2

        def forward(self, x):
            return poptorch.identity_loss(self.host(x * self.w).sum(), "none")

    net = Failing()
    model = trained(net) if training else poptorch.inferenceModel(net, quiet_options())
    assert model(torch.ones(2)) == 4
    with pytest.raises(Mine, match="too much"):
        model(torch.full((2,), 1e3))
    found = model(torch.ones(2))
    assert found < 4 if training else found == 4


def test_an_error_in_the_gradient():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise KeyError("in backward")

    class Failing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            return poptorch.identity_loss(poptorch.CPU(Bad.apply, "bad")(x * self.w).sum(), "none")

    model = trained(Failing())
    for _ in range(2):
        with pytest.raises(KeyError, match="in backward"):
            model(torch.ones(2))


def _runs(function, *values):
    class Calls(torch.nn.Module):
        def forward(self, x):
            return poptorch.CPU(function, "f")(x)

    model = poptorch.inferenceModel(Calls(), quiet_options())
    for value in values:
        model(torch.full((2,), float(value)))


@pytest.mark.parametrize(("function", "words"), [
    (lambda x: x.item() if x.numel() == 1 else 3.0, "'f' returns float 3.0, which would be the sa"),
    (lambda x: {"a": (x, len(x))}, "returns int 2 at a.1"),
    (lambda x: x.add_(1), "changes its argument number 0 in place"),
    (lambda x: x[:1] if x.sum() > 0 else x, r"sizes \[1\] as result 0, when it was compiled one"),
    (lambda x: x.int() if x.sum() > 0 else x, "a tensor of torch.int32 and"),
    (lambda x: [x, x] if x.sum() > 0 else [x], "'f' returns another length"),
    (lambda x: [x.numpy()] if x.sum() > 0 else [x], "returns ndarray as result 0"),
])
def test_functions_that_do_not_fit(function, words):
    with pytest.raises(poptorch.Error, match=words):
        _runs(function, 0, 1)


def test_a_parameter_that_istrained():
    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(2, 2)
            self.host = poptorch.CPU(self.fc, "fc")

        def forward(self, x):
            return poptorch.identity_loss((self.host(x) * self.fc.bias).sum(), "none")

    net = Hidden()
    with pytest.raises(poptorch.Error, match=r"\[CPU\] 'fc' uses fc.bias, fc.weight, which the p"):
        trained(net)(torch.ones(1, 2))
    x = torch.ones(1, 2)
    inference = poptorch.inferenceModel(Hidden(), quiet_options())
    torch.testing.assert_close(inference(x), inference.model(x))


def test_not_callable():
    with pytest.raises(poptorch.Error, match=r"\[CPU\] layer_to_call is 3, which cannot be called"):
        poptorch.CPU(3, "three")


def test_a_file_has_no_functions(tmp_path):
    model = poptorch.inferenceModel(Net(), quiet_options())
    model(torch.zeros(2, 3))
    with pytest.raises(poptorch.Error, match=r"\[save\] .*\(poptorch.CPU: 'chosen', 'softplus'\)"):
        model.save(str(tmp_path / "net"), export_model=False)


def test_a_site_of_another_process():
    with pytest.raises(poptorch.Error, match=r"\[CPU\] the program calls function -1 of the host"):
        torch.ops.poptorch.host_call([], -1)
