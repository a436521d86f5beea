"""Weight updates on the device equal torch's, step by step, in float64."""

import re

import pytest
import torch

import poptorch
from tests.helpers import check_narrow
from tests.helpers import quiet_options as options

SETTINGS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-5, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.01, "amsgrad": True}),
    ("Adam", {"lr": 0.01, "maximize": True}),
    ("AdamW", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.3, "amsgrad": True}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.5}),
    ("RMSprop", {"lr": 0.01, "centered": True, "weight_decay": 0.1, "maximize": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}),
    ("Adadelta", {"lr": 0.5, "weight_decay": 0.1}),
    ("Adamax", {"lr": 0.01, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.01, "decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.01, "weight_decay": 0.1}),
    ("Rprop", {"lr": 0.01}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "t0": 2}),
    ("Adafactor", {"lr": 0.1, "weight_decay": 0.1}),
]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(5, 7)
        self.second = torch.nn.Linear(7, 2)
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.erased = torch.nn.Parameter(torch.ones(2))  # its gradient is 0: weights may decay

    def forward(self, x, target):
        y = self.second(torch.tanh(self.first(x)))
        y = y + (self.erased * 2).zero_()
        return torch.nn.functional.mse_loss(y, target)


def pair():
    torch.manual_seed(torch.seed() % 2**32)
    ours, eager = Net().double(), Net().double()
    eager.load_state_dict(ours.state_dict())
    return ours, eager


def data():
    return torch.randn(4, 5, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)


def eager_step(net, optimizer, x, target):
    optimizer.zero_grad()
    loss = net(x, target)
    loss.backward()
    optimizer.step()
    return loss


def assert_equal(ours, eager):
    for (name, a), b in zip(ours.named_parameters(), eager.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12, msg=name)


CASES = {f"{package.__name__.partition('.')[0]}-{name}-{'-'.join(settings)}":
         (package, name, settings) for package in (poptorch.optim, torch.optim)
         for name, settings in SETTINGS if hasattr(package, name)}


@pytest.mark.parametrize(("package", "name", "settings"), CASES.values(), ids=CASES)
def test_update_equals_torch(package, name, settings):
    ours, eager = pair()
    optimizer = getattr(package, name)(ours.parameters(), **settings)
    reference = getattr(torch.optim, name)(eager.parameters(), **settings)
    with poptorch.testing.wide():
        model = poptorch.trainingModel(ours, options(), optimizer)
        for _ in range(4):
            x, target = data()
            loss = model(x, target)
            torch.testing.assert_close(loss, eager_step(eager, reference, x, target).detach(),
                                       rtol=1e-10, atol=1e-12)
    assert_equal(ours, eager)


def test_states_without_dimensions_are_of_the_default_type():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        test_update_equals_torch(torch.optim, "NAdam", {"lr": 0.0625, "weight_decay": 0.25})
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_counts_are_of_the_type_that_torch_has(dtype):
    before = torch.get_default_dtype()
    ours, eager = pair()
    x, target = (value.float() for value in data())
    optimizer = torch.optim.Adam(ours.float().parameters())
    reference = torch.optim.Adam(eager.float().parameters())
    on_the_host = poptorch.optim.LAMB(ours.parameters())
    torch.set_default_dtype(dtype)
    try:
        poptorch.trainingModel(ours, options(), optimizer)(x, target)
        eager_step(eager, reference, x, target)
        expected = reference.state[eager.first.weight]["step"]
        assert optimizer.state[ours.first.weight]["step"].dtype is expected.dtype
        ours.first.weight.grad = torch.ones_like(ours.first.weight)
        on_the_host.step()
        assert on_the_host.state[ours.first.weight]["step"].dtype is expected.dtype
    finally:
        torch.set_default_dtype(before)


def test_parameter_groups_and_schedule():
    ours, eager = pair()

    def groups(net):
        return [{"params": [net.first.weight], "lr": 0.3},
                {"params": net.second.parameters(), "momentum": 0.5}]

    optimizer = poptorch.optim.SGD(groups(ours), lr=0.05)
    reference = torch.optim.SGD(groups(eager), lr=0.05)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.5) for o in (optimizer, reference)]
    with poptorch.testing.wide():
        model = poptorch.trainingModel(ours, options(), optimizer)
        for _ in range(3):
            x, target = data()
            model(x, target)
            optimizer.step()  # host-side call that schedulers expect; there are no gradients
            eager_step(eager, reference, x, target)
            for schedule in schedules:
                schedule.step()
            model.setOptimizer(optimizer)
    assert_equal(ours, eager)


def test_state_of_a_running_optimizer_goes_on():
    ours, eager = pair()
    optimizer = torch.optim.Adam(ours.parameters(), lr=0.01)
    reference = torch.optim.Adam(eager.parameters(), lr=0.01)
    batches = [data() for _ in range(4)]
    for x, target in batches[:2]:
        eager_step(ours, optimizer, x, target)
    with poptorch.testing.wide():
        model = poptorch.trainingModel(ours, options(), optimizer)
        for x, target in batches[2:]:
            model(x, target)
    for x, target in batches:
        eager_step(eager, reference, x, target)
    assert_equal(ours, eager)


def test_marker_class():
    net = Net()
    ours = poptorch.optim.AdamW(net.parameters())
    assert isinstance(ours, poptorch.optim.Optimizer)
    assert type(ours).__bases__[1] is torch.optim.AdamW
    assert not isinstance(torch.optim.AdamW(net.parameters()), poptorch.optim.Optimizer)


class Clips(torch.nn.Module):
    """Changes its trained weight before it uses it."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([3.0, -0.5], dtype=torch.float64))

    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-1, 1)
        return poptorch.identity_loss((self.weight * x).sum(), "none")


def test_parameter_that_forward_changes():
    net, eager = Clips(), Clips()
    reference = torch.optim.SGD(eager.parameters(), lr=0.5)
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    with poptorch.testing.wide():
        model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.5))
        for _ in range(3):
            model(x)
            reference.zero_grad()
            eager(x).backward()
            reference.step()
    assert torch.equal(net.weight, eager.weight)


def test_parameter_that_forward_changes_with_accumulation():
    opts = options()
    opts.Training.gradientAccumulation(2)
    with pytest.raises(poptorch.Error, match="forward changes the trained parameter weight"):
        poptorch.trainingModel(Clips(), opts)(torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("before, after, words", [
    ({"momentum": 0.0}, {"momentum": 0.5}, "an update without momentum of parameter group 0 is "
     "already compiled, got momentum=0.5. Call destroy()"),
    ({"momentum": 0.5}, {"momentum": 0.0}, "an update with momentum of parameter group 0 is "
     "already compiled, got momentum=0.0. Call destroy()"),
    ({"momentum": 0.5}, {"momentum": 0.5, "nesterov": True}, "nesterov=False of parameter group 0 "
     "is already compiled, got True. Call destroy()"),
])
@pytest.mark.parametrize("in_place", [False, True])
def test_what_is_compiled_in_cannot_be_changed(before, after, words, in_place):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, **before)
    model = poptorch.trainingModel(net, options(), optimizer)
    data = torch.randn(4, 5), torch.randn(4, 2)
    model(*data)
    with pytest.raises(ValueError, match=re.escape(words)):
        if in_place:
            optimizer.param_groups[0].update(after)
            model(*data)
        else:
            model.setOptimizer(torch.optim.SGD(net.parameters(), lr=0.1, **after))


class Scores(torch.nn.Module):
    """A loss, and nothing to train."""

    def forward(self, x, target):
        return x * 2, torch.nn.functional.mse_loss(x, target)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_module_with_nothing_to_train(frozen, caplog):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3)).requires_grad_(False)
    net = Scores()
    if frozen:
        net.layer = module
    opts = options(deviceIterations=2)
    opts.Training.gradientAccumulation(2)
    opts.outputMode(poptorch.OutputMode.All)
    model = poptorch.trainingModel(net, opts)
    x, target = torch.randn(8, 3), torch.randn(8, 3)
    for _ in range(2):
        y, loss = model(x, target)
        torch.testing.assert_close(y, x * 2)
        expected = [torch.nn.functional.mse_loss(a, b) for a, b in zip(x.chunk(4), target.chunk(4))]
        torch.testing.assert_close(loss, torch.stack(expected))
    told = [line for line in caplog.messages if "no parameter of the module requires grad" in line]
    assert len(told) == 1
    assert net.state_dict().keys() == dict(net.named_parameters()).keys()


NETWORKS = [*SETTINGS, ("LAMB", {"lr": 0.05, "weight_decay": 0.1}),
            ("RMSprop", {"lr": 0.01, "momentum": 0.5, "use_tf_variant": True})]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "settings"), NETWORKS,
                         ids=[f"{n}-{'-'.join(s)}" for n, s in NETWORKS])
def test_a_network_by_the_numeric_rule(name, settings):
    """Ten steps, whose weights and losses are as close to float64 as eager's."""
    package = poptorch.optim if hasattr(poptorch.optim, name) else torch.optim
    nets = [Net(), Net(), Net().double()]
    for net in nets[1:]:
        net.load_state_dict(nets[0].state_dict())
    optimizers = [getattr(package, name)(net.parameters(), **settings) for net in nets]
    model = poptorch.trainingModel(nets[0], options(), optimizers[0])
    batches = [(torch.randn(4, 5), torch.randn(4, 2)) for _ in range(10)]
    losses = [[model(*pair) for pair in batches],
              [eager_step(nets[1], optimizers[1], *pair) for pair in batches],
              [eager_step(nets[2], optimizers[2], x.double(), y.double()) for x, y in batches]]
    ours, eager, exact = ({"loss": torch.stack(values).detach(), **dict(net.named_parameters())}
                          for net, values in zip(nets, losses))
    check_narrow(ours, [eager], exact)
