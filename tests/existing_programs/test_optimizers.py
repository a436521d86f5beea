"""What programs do with optimizers."""

import inspect

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

X = torch.arange(6.0).reshape(2, 3)
NEUTRAL = {
    poptorch.optim.SGD: {"lr": None, "loss_scaling": None, "velocity_scaling": 1.0,
                         "use_combined_accum": False, "accum_type": torch.float32,
                         "velocity_accum_type": None, "max_grad_norm": float("inf")},
    poptorch.optim.Adam: {"lr": None, "loss_scaling": 1.0, "accum_type": None, "fused": None,
                          "first_order_momentum_accum_type": torch.float32,
                          "second_order_momentum_accum_type": None, "max_grad_norm": None},
    poptorch.optim.AdamW: {"lr": None, "loss_scaling": None, "bias_correction": True,
                           "accum_type": torch.float32, "max_grad_norm": None},
    poptorch.optim.RMSprop: {"lr": None, "loss_scaling": None, "accum_type": None,
                             "first_order_momentum_accum_type": torch.float32,
                             "second_order_momentum_accum_type": None, "momentum": None,
                             "use_tf_variant": None},
    poptorch.optim.LAMB: {"lr": None, "loss_scaling": 1.0, "bias_correction": None,
                          "max_weight_norm": None, "accum_type": torch.float32,
                          "first_order_momentum_accum_type": None,
                          "second_order_momentum_accum_type": torch.float32},
}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)

    def forward(self, x):
        return poptorch.identity_loss(self.fc(x), "mean")


@pytest.mark.parametrize("kind", NEUTRAL)
def test_settings_that_are_none_or_neutral(kind):
    net = Net()
    optimizer = kind(net.parameters(), **NEUTRAL[kind])
    assert isinstance(optimizer, poptorch.optim.Optimizer)
    plain = kind.__bases__[1]
    assert plain is getattr(torch.optim, kind.__name__, plain)
    assert issubclass(plain, torch.optim.Optimizer)
    assert not issubclass(plain, poptorch.optim.Optimizer)
    optimizer.param_groups[0]["lr"] = 0.5
    before = net.fc.weight.detach().clone()
    poptorch.trainingModel(net, quiet_options(), optimizer)(X)
    assert not torch.equal(net.fc.weight, before)


def test_a_setting_of_a_group():
    net = Net()
    optimizer = poptorch.optim.SGD(
        [{"params": net.parameters(), "loss_scaling": 1.0, "max_weight_norm": 2.0}], lr=0.1,
        loss_scaling=1.0)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    model(X)
    optimizer.param_groups[0]["loss_scaling"] = 128.0
    model.setOptimizer(optimizer)
    model(X)
    assert optimizer.state_dict()["ipu_param"]["lossScaling_FLOAT"] == 128.0


@pytest.mark.parametrize("when", ["compile", "setOptimizer"])
def test_a_setting_that_is_changed_afterwards(when):
    """Before the model is compiled it may be, afterwards only if it was passed."""
    net = Net()
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1, loss_scaling=None)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    if when == "setOptimizer":
        model(X)
    optimizer.loss_scaling = 128.0
    if when == "compile":
        model.compile(X)
        assert optimizer.state_dict()["ipu_param"]["lossScaling_FLOAT"] == 128.0
        return
    with pytest.raises(ValueError, match=r"loss_scaling=1.0 is a constant of the compiled model"):
        model.setOptimizer(optimizer)
    optimizer.loss_scaling = 1.0
    model.setOptimizer(optimizer)
    model(X)


@pytest.mark.parametrize("package", [torch.optim, poptorch.optim], ids=["torch", "poptorch"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_a_subclass_is_told_of_once(package, name, capsys):
    kind, net = getattr(package, name), Net()
    words = "Poptorch does not run Python optimizer code directly"
    model = poptorch.trainingModel(net, quiet_options(), kind(net.parameters(), lr=0.1))
    model(X)
    assert words not in capsys.readouterr().err
    own = type("Own", (type("Between", (kind,), {}), type("Mixin", (), {})), {})
    for _ in range(2):
        model.setOptimizer(own(net.parameters(), lr=0.1))
    told = capsys.readouterr().err
    assert told.count(f"Own is a subclass: {words}") == 1
    assert f"updates as {name} does" in told


# Rprop is none of them: its steps have a size of their own, in eager mode, too.
WITH_A_RATE = [*NEUTRAL, *(getattr(torch.optim, name) for name in (
    "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD",
    "Adafactor"))]


@pytest.mark.parametrize("kind", WITH_A_RATE)
def test_a_learning_rate_of_zero_changes_nothing(kind):
    net = Net()
    settings = {"momentum": 0.9} if "momentum" in inspect.signature(kind).parameters else {}
    optimizer = kind(net.parameters(), lr=0.0, weight_decay=0.1, **settings)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    x = torch.randn(4, 3)
    losses = torch.stack([model(x) for _ in range(50)])
    assert torch.equal(losses, losses[:1].expand(50))


@pytest.mark.parametrize("name", ["nesterov", "maximize"])
def test_a_constant_that_is_changed_in_place(name):
    net = Net()
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    model(X)
    optimizer.param_groups[0][name] = True
    with pytest.raises(ValueError, match=f"{name}=False of parameter group 0 is already compiled"):
        model(X)
    optimizer.param_groups[0][name] = False
    model(X)


def test_groups_with_keys_of_other_programs():
    net = Net()
    groups = [{"params": [net.fc.weight], "max_weight_norm": 10.0, "lr": 0.5},
              {"params": [net.fc.bias], "max_weight_norm": None, "lr": 0.0}]
    before = [p.detach().clone() for p in net.parameters()]
    poptorch.trainingModel(net, quiet_options(), poptorch.optim.AdamW(groups))(X)
    assert not torch.equal(net.fc.weight, before[0]) and torch.equal(net.fc.bias, before[1])


def test_hints_warn_once(capsys):
    from poptorch.blocks import _warn_of_hints  # to start again

    _warn_of_hints.cache_clear()
    for _ in range(2):
        manager = poptorch.Attribute(__outline={"layer": "embedding"})
        manager.__enter__()
        manager.__exit__(None, None, None)
    assert capsys.readouterr().err.count("hints change nothing") == 1
    with pytest.raises(TypeError, match="expected hints as keywords, got none"):
        poptorch.Attribute()
