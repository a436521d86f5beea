"""What programs do around the update on the host: clipping, p.grad, schedulers, states."""

import contextlib
import copy
import functools
import warnings

import pytest
import torch

import poptorch
from poptorch._optimizer.rows import LAMB
from tests.optim.common import written
from tests.optim.loops import Net, options

CLIPS = [functools.partial(torch.nn.utils.clip_grad_norm_, max_norm=1.0),
         functools.partial(torch.nn.utils.clip_grad_value_, clip_value=1.0)]


def batch(n=4):
    return torch.randn(n, 6), torch.randn(n, 3)


def compiled(opts=None, make=functools.partial(torch.optim.SGD, lr=0.1), net=None):
    net = net or Net()
    optimizer = make(net.parameters())
    model = poptorch.trainingModel(net, opts or options(), optimizer)
    model(*batch())
    return net, optimizer, model


@pytest.mark.parametrize("clip", CLIPS)
def test_clipping_on_the_host_is_told_of_once(clip, caplog):
    net, _, model = compiled()
    for _ in range(2):
        with contextlib.suppress(RuntimeError):  # clip_grad_value_ takes no empty list
            clip(net.parameters())
        model(*batch())
    told = [line for line in caplog.messages if "clip_grad_norm_ or clip_grad_value_ was" in line]
    assert len(told) == 1 and "options.Training.gradientClipping(norm=..., value=...)" in told[0]


def test_clipping_of_what_the_host_trains(caplog):
    """No warning for parameters without a device, nor for gradients of the host."""
    net, other = compiled()[0], Net()
    for module in (net, other):
        torch.nn.functional.mse_loss(module.first(torch.ones(6)), torch.ones(8)).backward()
    norms = [torch.nn.utils.clip_grad_norm_(module.first.parameters(), 1e-3)
             for module in (net, other)]
    assert all(norm > 0 for norm in norms)
    assert not [line for line in caplog.messages if "was called on parameters" in line]


def test_gradients_that_are_not_anchored():
    net, _, _ = compiled()
    assert net.first.weight.grad is None


@pytest.mark.parametrize("replicas, accumulation, iterations", [(1, 1, 1), (2, 2, 1), (1, 1, 3)])
def test_gradients_that_are_anchored(replicas, accumulation, iterations):
    """Those of the last update."""
    opts = options(accumulation, replicas, deviceIterations=iterations)
    opts.anchorTensor("w", "Gradient___first.weight").anchorTensor("b", "Gradient___second.bias")
    net = Net()
    eager = copy.deepcopy(net)
    model = poptorch.trainingModel(net, opts, torch.optim.SGD(net.parameters(), lr=0.0))
    model.compile(*batch(4 * replicas * accumulation * iterations))
    assert net.first.weight.grad is None
    x, target = batch(4 * replicas * accumulation * iterations)
    model(x, target)
    part = slice(4 * replicas * accumulation * (iterations - 1), None)
    if iterations == 1:
        eager(x[part], target[part]).backward()
    else:  # a replica reads one part of all iterations after the other
        eager(x[part], target[part]).backward()
    for ours, theirs in ((net.first.weight, eager.first.weight),
                         (net.second.bias, eager.second.bias)):
        torch.testing.assert_close(ours.grad, theirs.grad)
        assert ours.grad.shape == ours.shape and ours.grad.dtype is ours.dtype
    assert net.first.bias.grad is None


def test_a_gradient_that_is_anchored_is_for_reading():
    """A step on the host does not apply it once more; zero_grad() does not mind it."""
    opts = options().anchorTensor("w", "Gradient___first.weight")
    net, optimizer, _ = compiled(opts)
    before = net.first.weight.detach().clone()
    assert net.first.weight.grad is not None
    optimizer.step()
    assert torch.equal(net.first.weight.detach(), before)
    optimizer.zero_grad()


def test_a_gradient_of_the_host_comes_first():
    opts = options().anchorTensor("w", "Gradient___first.weight")
    net, _, _ = compiled(opts)
    net.first.weight.sum().backward()
    assert torch.equal(net.first.weight.grad, torch.ones(8, 6))


def test_schedulers_do_not_warn():
    """The order of optimizer.step() and scheduler.step() is that of a call and scheduler.step()."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, options(), optimizer)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            model(*batch())
            schedule.step()
            model.setOptimizer(optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.0125


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_a_closure_on_the_host(name):
    net = Net()
    optimizer = getattr(poptorch.optim, name)(net.parameters(), lr=0.1)
    before, data = net.first.weight.detach().clone(), batch()

    def closure():
        optimizer.zero_grad()
        loss = net(*data)
        loss.backward()
        return loss

    assert optimizer.step(closure) > 0
    assert not torch.equal(net.first.weight, before)


STATES = {"SGD": {"lr": 0.1, "momentum": 0.9}, "Adam": {"lr": 0.01, "amsgrad": True},
          "AdamW": {"lr": 0.01, "betas": (0.8, 0.9)}, "LAMB": {"lr": 0.01},
          "RMSprop": {"lr": 0.01, "momentum": 0.5, "centered": True}}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("when", ["before compiling", "after a run"])
def test_a_state_of_torch(name, when):
    """Training goes on as it does in PyTorch."""
    eager = Net()
    theirs = getattr(torch.optim, name, LAMB)(eager.parameters(), **STATES[name])
    for _ in range(3):
        theirs.zero_grad()
        eager(*batch()).backward()
        theirs.step()
    net = copy.deepcopy(eager)
    for p in net.parameters():
        p.grad = None
    settings = {**STATES[name], "lr": 0.5}
    ours = getattr(poptorch.optim, name)(net.parameters(), **settings)
    model = poptorch.trainingModel(net, options(), ours)
    if when == "after a run":
        model(*batch())
        model.load_state_dict(eager.state_dict())
    ours.load_torch_state_dict(written(theirs.state_dict()))
    for _ in range(2):
        data = batch()
        model(*data)
        theirs.zero_grad()
        eager(*data).backward()
        theirs.step()
    for a, b in zip(net.parameters(), eager.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_a_state_of_torch_keeps_its_type():
    net = Net(torch.float16)
    ours = poptorch.optim.Adam(net.parameters(), lr=0.0)
    state = copy.deepcopy(ours.state_dict())
    tiny = {"step": torch.tensor(1.0), "exp_avg": torch.full((3,), 1e-12),
            "exp_avg_sq": torch.full((3,), 1e-12)}
    state["state"] = {3: tiny}
    ours.load_torch_state_dict(state)
    assert ours.state[net.second.bias]["exp_avg"].dtype is torch.float32
    model = poptorch.trainingModel(net, options(), ours)
    model.compile(torch.zeros(4, 6).half(), torch.zeros(4, 3).half())
    assert torch.equal(ours.state_dict()["ipu_state"]["Accl1___second.bias"], tiny["exp_avg"])


@pytest.mark.parametrize("ours, theirs, why", [
    ("Adam", "SGD", "parameter group 0 has no betas"),
    ("SGD", "Adam", "parameter group 0 has no dampening"),
    ("AdamW", "Adam", "decoupled_weight_decay of parameter group 0 is False, here True"),
])
def test_a_state_of_another_kind(ours, theirs, why):
    net = Net()
    state = getattr(torch.optim, theirs)(net.parameters(), lr=0.1).state_dict()
    optimizer = getattr(poptorch.optim, ours)(net.parameters(), lr=0.1)
    words = rf"\[load_torch_state_dict\] the state is not that of torch.optim.{ours} .*: {why}."
    with pytest.raises(ValueError, match=words):
        optimizer.load_torch_state_dict(state)
    with pytest.raises(TypeError, match="got the entries lr"):
        optimizer.load_torch_state_dict({"lr": 0.1})
    with pytest.raises(RuntimeError, match="Only IPU optimizer states can be loaded onto the IPU"):
        optimizer.load_state_dict(state)


def test_a_state_that_has_more():
    net = Net()
    state = torch.optim.Adam(net.parameters(), lr=0.1).state_dict()
    state["state"] = {0: {"speed": torch.ones(8, 6)}}
    with pytest.raises(ValueError, match="the state of a parameter has speed"):
        poptorch.optim.Adam(net.parameters(), lr=0.1).load_torch_state_dict(state)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "LAMB"])
def test_steps_on_the_host_with_states_of_the_device(name):
    """Of half weights, whose states are float32 on the device."""
    net = Net(torch.float16)
    settings = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(poptorch.optim, name)(net.parameters(), lr=2.0**-7, **settings)
    model = poptorch.trainingModel(net, options(), optimizer)
    model(*(part.half() for part in batch()))
    eager = copy.deepcopy(net)
    reference = getattr(poptorch.optim, name)(eager.float().parameters(), lr=2.0**-7, **settings)
    reference.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for _ in range(2):
        for ours, wide in zip(net.parameters(), eager.parameters()):
            ours.grad = torch.randn(ours.shape).half()
            wide.grad = ours.grad.float()
        optimizer.step()
        reference.step()
    for ours, wide in zip(net.parameters(), eager.parameters()):
        torch.testing.assert_close(ours.float(), wide, rtol=2e-3, atol=1e-3)
    moment = {"SGD": "momentum_buffer", "RMSprop": "square_avg"}.get(name, "exp_avg")
    assert optimizer.state[net.first.bias][moment].dtype is torch.float32


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adamw_without_correction_on_the_host(weight_decay):
    """The CPU and the device agree in 10 steps."""
    nets = [Net()]
    nets.append(copy.deepcopy(nets[0]))
    optimizers = [poptorch.optim.AdamW(net.parameters(), lr=0.01, bias_correction=False,
                                       weight_decay=weight_decay) for net in nets]
    model = poptorch.trainingModel(nets[0], options(), optimizers[0])
    for _ in range(10):
        x, target = batch()
        loss = model(x, target)
        optimizers[1].zero_grad()
        expected = nets[1](x, target)
        expected.backward()
        optimizers[1].step()
        torch.testing.assert_close(loss, expected.detach())
