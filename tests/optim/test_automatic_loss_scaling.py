"""setAutomaticLossScaling: the state machine, against one in Python."""

import copy

import pytest
import torch
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

import poptorch
from poptorch._translate import loss_scale
from tests.optim.loops import Net, options

F16 = torch.float16
FACTOR, QUIET = "lossScaleUpdateFactor", "lossScaleQuietUpdates"


class Times(torch.nn.Module):
    """The gradient of the weight is ``x``."""

    def __init__(self, dtype=F16):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, dtype=dtype))

    def forward(self, x):
        return poptorch.identity_loss((self.weight * x).sum(), "none")


class Machine:
    """What docs/guide/training/training_in_16_bits.md says."""

    def __init__(self, initial, most=2.0**15):
        self.initial, self.factor, self.quiet, self.most = initial, 1.0, 0, most

    @property
    def scale(self):
        return self.initial * self.factor

    def update(self, gradients):
        """Takes note of scaled gradients, one for each micro-batch; whether they are used."""
        overflow = not all(torch.isfinite(g).all() for g in gradients)
        large = any((~(g.abs() <= loss_scale.LARGE)).any() for g in gradients)
        if overflow or large:
            self.factor, self.quiet = max(self.factor / 2, loss_scale.LEAST), 0
        elif self.quiet + 1 < loss_scale.QUIET_UPDATES:
            self.quiet += 1
        else:
            self.factor *= 2 if self.scale * 2 <= self.most else 1
            self.quiet = 0
        return not overflow


def states(optimizer):
    shown = optimizer.state_dict()["ipu_state"]
    return shown[FACTOR].item(), shown[QUIET].item()


@pytest.mark.parametrize("accumulation, replicas", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_the_factor_goes_up_and_down(accumulation, replicas):
    """Compared with the rule in Python, for updates that overflow sometimes."""
    net, machine = Times(), Machine(2.0**10)
    optimizer = poptorch.optim.SGD(net.parameters(), lr=2.0**-10, loss_scaling=2.0**10)
    opts = options(accumulation, replicas, automatic=True)
    opts.anchorTensor("scale", "finalLossScale")
    model = poptorch.trainingModel(net, opts, optimizer)
    weight, micro = net.weight.detach().clone(), accumulation * replicas
    for number in range(80):
        size = [1.0, 1.0, 20.0, 4e3][torch.randint(0, 60 if number < 40 else 8, ()) % 4
                                     if torch.rand(()) < 0.15 else 0]
        x = torch.rand(micro, 4).to(F16)
        x[torch.randint(0, micro, ())] *= size
        scaled = [(machine.scale * row).to(F16) for row in x]
        before = machine.scale
        model(x.reshape(-1))
        assert model.getAnchoredTensor("scale").unique().item() == before
        if machine.update(scaled):
            mean = x.float().mean(0)
            weight = (weight.float() - 2.0**-10 * mean).to(F16)
        assert states(optimizer) == (machine.factor, machine.quiet), number
    torch.testing.assert_close(net.weight.detach(), weight, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("kind", ["Adam", "RMSprop", "LAMB"])
def test_an_overflow_is_skipped(kind):
    """Weights, states and their count stay; the next update is as if it had not been there."""
    net = Times()
    eager = copy.deepcopy(net)
    optimizer = getattr(poptorch.optim, kind)(net.parameters(), lr=0.125, loss_scaling=2.0**15)
    model = poptorch.trainingModel(net, options(automatic=True), optimizer)
    model(torch.ones(4, dtype=F16))
    kept = net.weight.detach().clone(), copy.deepcopy(optimizer.state_dict()["ipu_state"])
    model(torch.full((4,), 100.0, dtype=F16))
    assert torch.equal(net.weight.detach(), kept[0])
    after = optimizer.state_dict()["ipu_state"]
    names = after.keys() - {FACTOR, QUIET}
    assert {"Accl1___weight", "Step___weight"} <= names
    assert all(torch.equal(after[name], kept[1][name]) for name in names)
    assert after[FACTOR] == 0.5 * kept[1][FACTOR]
    model(torch.ones(4, dtype=F16))
    make = getattr(torch.optim, kind, poptorch.optim.LAMB)
    reference = make(eager.float().parameters(), lr=0.125)
    for _ in range(2):
        reference.zero_grad()
        eager(torch.ones(4)).backward()
        reference.step()
    torch.testing.assert_close(net.weight.detach().float(), eager.weight.detach(), rtol=1e-3,
                               atol=1e-3)


@pytest.mark.parametrize("package", [poptorch.optim, torch.optim])
def test_nan_is_an_overflow(package):
    net = Times()
    optimizer = package.SGD(net.parameters(), lr=0.5, momentum=0.5)
    model = poptorch.trainingModel(net, options(automatic=True), optimizer)
    model(torch.tensor([1.0, float("nan"), 1.0, 1.0], dtype=F16))
    assert torch.equal(net.weight.detach(), torch.ones(4, dtype=F16))
    assert optimizer.state["loss_scale"]["factor"] == 0.5


def test_bounds():
    """The scale is not above 2**15 for a loss of float16, the factor not below 2**-24."""
    net = Times()
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.0, loss_scaling=2.0**14)
    model = poptorch.trainingModel(net, options(automatic=True), optimizer)
    for _ in range(3 * loss_scale.QUIET_UPDATES):
        model(torch.zeros(4, dtype=F16))
    assert states(optimizer)[0] == 2.0
    for _ in range(30):
        model(torch.full((4,), float("inf"), dtype=F16))
    assert states(optimizer)[0] == loss_scale.LEAST


def test_float32():
    """Their gradients come near no limit: the factor grows, and training is that without it."""
    results = []
    for automatic in (False, True):
        torch.manual_seed(3)
        net = Net()
        optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        model = poptorch.trainingModel(net, options(automatic=automatic), optimizer)
        for _ in range(loss_scale.QUIET_UPDATES + 2):
            model(torch.randn(4, 6), torch.randn(4, 3))
        results.append(torch.cat([p.detach().reshape(-1) for p in net.parameters()]))
    torch.testing.assert_close(*results)  # powers of two change no bit but of the smallest numbers
    assert states(optimizer) == (2.0, 2.0)


def test_device_iterations():
    """Each iteration goes on from the factor of the one before."""
    net = Times()
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.0, loss_scaling=2.0)
    steps = loss_scale.QUIET_UPDATES + 3
    opts = options(automatic=True, deviceIterations=steps)
    opts.anchorTensor("scale", "finalLossScale", poptorch.OutputMode.All)
    model = poptorch.trainingModel(net, opts, optimizer)
    model(torch.ones(4 * steps, dtype=F16))
    assert model.getAnchoredTensor("scale").tolist() == [2.0] * loss_scale.QUIET_UPDATES + [4.0] * 3


@pytest.mark.parametrize("package", [poptorch.optim, torch.optim])
def test_resuming(package, tmp_path):
    """Training that goes on from saved states equals one that was not interrupted, bit for bit;
    the optimizers of PyTorch keep the factor, too."""
    def new():
        torch.manual_seed(5)
        net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.5),
                                  torch.nn.Linear(8, 3)).half()
        module = torch.nn.Module()
        module.net = net
        module.forward = lambda x: poptorch.identity_loss(module.net(x).float().square(), "mean")
        # torch.optim keeps the squares in float16: small ones are 0, and the default eps of 1e-8
        # then gives steps after which the training diverges to NaN.
        optimizer = package.Adam(net.parameters(), lr=0.01, eps=1e-3)
        model = poptorch.trainingModel(module, options(2, automatic=True), optimizer)
        return module, optimizer, model

    x = [torch.randn(8, 6).half() * (1e4 if i == 7 else 1) for i in range(20)]
    module, optimizer, model = new()
    for part in x[:12]:
        model(part)
    path = tmp_path / "saved.pt"
    torch.save({"net": module.state_dict(), "optimizer": optimizer.state_dict(),
                "rng": model.rng_state}, path)
    for part in x[12:]:
        model(part)
    again, other, resumed = new()
    saved = torch.load(path)
    again.load_state_dict(saved["net"])
    other.load_state_dict(saved["optimizer"])
    resumed.compile(x[0])
    resumed.rng_state = saved["rng"]
    for part in x[12:]:
        resumed(part)
    for a, b in zip(module.parameters(), again.parameters()):
        assert torch.equal(a, b)
    assert optimizer.state["loss_scale"] == other.state["loss_scale"]
    assert optimizer.state["loss_scale"]["factor"] != 1.0


def resumed_by_parameter_names(package):
    def new():
        net = Times()
        optimizer = package.Adam(net.parameters(), lr=0.0)
        return net, optimizer, poptorch.trainingModel(net, options(automatic=True), optimizer)

    net, optimizer, model = new()
    model(torch.ones(4, dtype=F16))
    model(torch.full((4,), float("inf"), dtype=F16))
    return new, get_optimizer_state_dict(net, optimizer)


@pytest.mark.parametrize("package", [poptorch.optim, torch.optim])
def test_saved_by_parameter_names(package):
    """``torch.distributed.checkpoint`` goes through the state by parameter."""
    _, saved = resumed_by_parameter_names(package)
    assert list(saved["state"]) == ["weight"]
    assert saved["param_groups"][0]["loss_scale"]["factor"] == 0.5


def test_copies_are_saved_by_parameter_names():
    net = Times()
    optimizer = poptorch.optim.Adam(net.parameters(), lr=0.0)
    model = poptorch.trainingModel(net, options(automatic=True), optimizer)
    model(torch.full((4,), float("inf"), dtype=F16))
    for copied in (copy.deepcopy(optimizer), copy.copy(optimizer)):
        saved = copied.state_dict()
        assert "loss_scale" not in saved["state"]
        assert saved["param_groups"][0]["loss_scale"]["factor"] == 0.5


@pytest.mark.parametrize("is_compiled", [False, True])
def test_loaded_by_parameter_names(is_compiled):
    new, saved = resumed_by_parameter_names(torch.optim)
    net, optimizer, model = new()
    if is_compiled:
        model.compile(torch.ones(4, dtype=F16))
    set_optimizer_state_dict(net, optimizer, saved)
    assert optimizer.state["loss_scale"]["factor"] == 0.5
    assert "loss_scale" not in optimizer.param_groups[0]
    model(torch.full((4,), float("inf"), dtype=F16))
    assert optimizer.state["loss_scale"]["factor"] == 0.25


@pytest.mark.parametrize("package", [poptorch.optim, torch.optim])
@pytest.mark.parametrize("is_old_form", [False, True])
def test_loaded_before_the_model_is_wrapped(package, is_old_form):
    net = Times()
    optimizer = package.Adam(net.parameters(), lr=0.0)
    model = poptorch.trainingModel(net, options(automatic=True), optimizer)
    model(torch.full((4,), float("inf"), dtype=F16))
    saved = optimizer.state_dict()
    if is_old_form:
        saved["state"]["loss_scale"] = saved["param_groups"][0].pop("loss_scale")
    net = Times()
    other = package.Adam(net.parameters(), lr=0.0)
    other.load_state_dict(saved)
    model = poptorch.trainingModel(net, options(automatic=True), other)
    assert "loss_scale" not in other.param_groups[0]
    model(torch.full((4,), float("inf"), dtype=F16))
    assert other.state["loss_scale"]["factor"] == 0.25


def test_a_file_has_the_factor(tmp_path):
    net = Times()
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.0)
    model = poptorch.trainingModel(net, options(automatic=True), optimizer)
    model(torch.full((4,), float("inf"), dtype=F16))
    path = model.save(tmp_path / "net.poptorch")
    net = Times()
    other = poptorch.optim.SGD(net.parameters(), lr=0.0)
    loaded = poptorch.trainingModel(net, options(automatic=True), other)
    loaded.loadExecutable(path)
    assert states(other)[0] == 0.5
    loaded(torch.full((4,), float("inf"), dtype=F16))
    assert states(other)[0] == 0.25
