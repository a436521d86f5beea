"""Settings of optimizers that only the device has, against loops of PyTorch in float64."""

import functools
import re

import pytest
import torch

import poptorch
from poptorch._capture import capture
from poptorch._optimizer.link import OptimizerLink
from poptorch._translate import StepSpec, translate
from tests.optim.loops import Net, options, train

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
# With the usual epsilon, 1e-8, a gradient that happens to be near 0 moves its weight as far as
# others do, in the direction of its rounding.
EPS = 1e-3
KINDS = {
    "SGD": {"lr": 0.1},
    "momentum": {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.05},
    "Adam": {"lr": 0.01, "eps": EPS, "weight_decay": 0.05},
    "AdamW": {"lr": 0.01, "eps": EPS, "weight_decay": 0.05},
    "RMSprop": {"lr": 0.01, "eps": EPS, "momentum": 0.5, "centered": True},
    "LAMB": {"lr": 0.01, "eps": EPS, "weight_decay": 0.05},
}
NATIVE = ["SGD", "momentum", "Adam", "AdamW"]


def pair(kind, **settings):
    """What makes our optimizer with these settings, and PyTorch's."""
    name = "SGD" if kind == "momentum" else kind
    return (functools.partial(getattr(poptorch.optim, name), **KINDS[kind], **settings),
            functools.partial(getattr(torch.optim, name, poptorch.optim.LAMB), **KINDS[kind]))


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1.0, 2.0**12, 1000.0])
def test_loss_scaling(kind, scale):
    model, optimizer, off = train(*pair(kind, loss_scaling=scale))
    assert off < 1e-5
    shown = optimizer.state_dict()["ipu_param"]
    assert shown["lossScaling_FLOAT"] == scale
    if kind == "SGD":
        torch.testing.assert_close(shown["scaledLearningRate0___specific___first.bias"],
                                   torch.tensor(0.1 / scale))


@pytest.mark.parametrize("accumulation, replicas", [(3, 1), (1, 2), (2, 2)])
def test_loss_scaling_with_micro_batches_and_replicas(accumulation, replicas):
    _, _, off = train(*pair("momentum", loss_scaling=64.0), options(accumulation, replicas))
    assert off < 1e-5


class Small(torch.nn.Module):
    """The gradient of its weight is ``x``."""

    def __init__(self, dtype):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, dtype=dtype))

    def forward(self, x):
        return poptorch.identity_loss((self.weight * x).sum() * 2.0**-26, "none")


@pytest.mark.parametrize("scale, moves", [(1.0, False), (2.0**14, True)])
def test_small_gradients_of_halves(scale, moves):
    """What is 0 in float16 is not, scaled; the update divides in float32."""
    net = Small(F16)
    optimizer = poptorch.optim.SGD(net.parameters(), lr=2.0**24, loss_scaling=scale)
    poptorch.trainingModel(net, options(), optimizer)(torch.ones(4, dtype=F16))
    assert torch.equal(net.weight, torch.full((4,), 0.75 if moves else 1.0, dtype=F16))


def test_a_loss_scale_that_is_too_large():
    """For a loss of float16; one of float32 takes it."""
    words = "the loss scale is 131072, but the largest f16 number is 65504 and the loss has this"
    for dtype, can in ((F16, False), (F32, True)):
        net = Small(dtype)
        optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1, loss_scaling=2.0**17)
        model = poptorch.trainingModel(net, options(), optimizer)
        if can:
            model(torch.ones(4))
            continue
        with pytest.raises(poptorch.Error, match=words):
            model(torch.ones(4, dtype=dtype))
        optimizer.loss_scaling = 1.0
        model.setOptimizer(optimizer)
        model(torch.ones(4, dtype=dtype))


def test_what_anchors_show():
    """The numbers of the device are those of ipu_param."""
    names = ["lossScaling_FLOAT", "scaledLearningRate0___specific___first.bias",
             "weightDecayScaleFactor0___specific___first.bias"]
    opts = options()
    for name in names:
        opts.anchorTensor(name, name)
    model, optimizer, _ = train(*pair("momentum", loss_scaling=64.0), opts)
    shown = optimizer.state_dict()["ipu_param"]
    for name in names:
        torch.testing.assert_close(model.getAnchoredTensor(name).reshape(()), shown[name])


def test_a_loss_scale_that_changes():
    """By assignment and setOptimizer; nothing is compiled for it."""
    models = []

    def change(step, ours, theirs, model):
        if step:
            models.append(model._programs.current)
            ours.loss_scaling = 2.0**step
            model.setOptimizer(ours)

    model, optimizer, off = train(*pair("momentum", loss_scaling=1.0), before_step=change)
    assert off < 1e-5 and {id(m) for m in models} == {id(model._programs.current)}
    assert optimizer.state_dict()["ipu_param"]["lossScaling_FLOAT"] == 16


def gradient(net, opts, optimizer, *batch):
    with poptorch.testing.keep_gradients():
        model = poptorch.trainingModel(net, opts, optimizer)
        model(*batch)
    return poptorch.testing.gradients(model), model


def test_a_loss_scale_in_a_group():
    net = Small(F16)
    optimizer = torch.optim.SGD([{"params": net.parameters(), "loss_scaling": 2.0**14}], lr=2.0**24)
    poptorch.trainingModel(net, options(), optimizer)(torch.ones(4, dtype=F16))
    assert torch.equal(net.weight, torch.full((4,), 0.75, dtype=F16))


def test_the_key_of_the_first_group_is_for_all():
    net = Net()
    groups = [{"params": [net.first.weight], "loss_scaling": 64.0, "max_grad_norm": 1e-3},
              {"params": [net.second.bias]}]
    optimizer = poptorch.optim.SGD(groups, lr=1.0)
    before = net.second.bias.detach().clone()
    model = poptorch.trainingModel(net, options(), optimizer)
    model(torch.randn(4, 6), torch.randn(4, 3))
    assert 0 < (net.second.bias.detach() - before).norm() <= 1.001e-3
    shown = optimizer.state_dict()["ipu_param"]
    assert shown["scaledLearningRate0___specific___second.bias"] == 1 / 64


def test_groups_that_disagree():
    net = Net()
    groups = [{"params": [net.first.weight], "loss_scaling": 2.0},
              {"params": [net.second.weight], "loss_scaling": 4.0}]
    words = "loss_scaling is 2.0 for parameter group 0 and 4.0 for parameter group 1, it is one"
    with pytest.raises(poptorch.Error, match=words):
        poptorch.trainingModel(net, options(), poptorch.optim.SGD(groups, lr=0.1))


def test_gradients_that_are_kept_are_not_scaled():
    x = torch.ones(4, dtype=F16)
    net = Small(F16)
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1, loss_scaling=2.0**14)
    opts = options().anchorTensor("grad", "Gradient___weight")
    found, model = gradient(net, opts, optimizer, x)
    assert torch.equal(found["weight"], torch.full((4,), 2.0**-26))
    assert torch.equal(model.getAnchoredTensor("grad"), torch.full((4,), 2.0**-26))


@pytest.mark.parametrize("kind", NATIVE)
@pytest.mark.parametrize("scale", [None, 128.0])
@pytest.mark.parametrize("accumulation, replicas", [(1, 1), (2, 2)])
def test_max_grad_norm(kind, scale, accumulation, replicas):
    make, reference = pair(kind, max_grad_norm=0.2, loss_scaling=scale)
    opts = options(accumulation, replicas)
    assert train(make, reference, opts, norm=0.2)[-1] < 1e-5


def test_max_grad_norm_that_changes():
    """With a limit that is not reached and one that is."""
    def change(step, ours, theirs, model):
        ours.max_grad_norm = [float("inf"), 1000.0][step % 2]
        model.setOptimizer(ours)

    assert train(*pair("momentum", max_grad_norm=0.1), before_step=change)[-1] < 1e-5


@pytest.mark.parametrize("kind", ["momentum", "SGD"])
@pytest.mark.parametrize("accumulation, replicas", [(1, 1), (3, 1), (2, 2)])
@pytest.mark.parametrize("velocity", [1.0, 32.0])
def test_the_combined_variant(kind, accumulation, replicas, velocity):
    make, reference = pair(kind, use_combined_accum=True, velocity_scaling=velocity,
                           loss_scaling=16.0)
    model, optimizer, off = train(make, reference, options(accumulation, replicas))
    assert off < 1e-5
    has_state = kind == "momentum"
    state = optimizer.state_dict()["ipu_state"]
    assert ("Accl1___first.weight" in state) == has_state


def test_the_velocity_is_scaled():
    states = []
    for velocity in (1.0, 32.0):
        torch.manual_seed(0)
        make, reference = pair("momentum", use_combined_accum=True, velocity_scaling=velocity)
        states.append(train(make, reference)[1].state_dict()["ipu_state"]["Accl1___second.bias"])
    torch.testing.assert_close(states[1], states[0] * 32)


TYPES = [("SGD", "momentum", {"velocity_accum_type": F16}),
         ("Adam", "Adam", {"first_order_momentum_accum_type": F16}),
         ("AdamW", "AdamW", {"first_order_momentum_accum_type": BF16,
                             "second_order_momentum_accum_type": BF16}),
         ("RMSprop", "RMSprop", {"second_order_momentum_accum_type": BF16}),
         ("LAMB", "LAMB", {"first_order_momentum_accum_type": F16})]


def state_types(model):
    """Type of each state of an optimizer on the device, by its key."""
    return {path.split(".")[2]: dtype for path, dtype in (
        (state.path, state.dtype) for state in model._programs.current.executable.states())
        if path.startswith("optimizer.group0.") and "first.weight" in path}


@pytest.mark.parametrize("name, kind, settings", TYPES, ids=lambda x: x if x is str else None)
def test_types_of_states(name, kind, settings):
    model, optimizer, off = train(*pair(kind, **settings))
    assert off < 5e-3
    keys = {"velocity_accum_type": "momentum_buffer", "first_order_momentum_accum_type": "exp_avg",
            "second_order_momentum_accum_type": "square_avg" if kind == "RMSprop"
            else "exp_avg_sq"}
    names = {F16: "f16", BF16: "bf16"}
    expected = {keys[key]: names[dtype] for key, dtype in settings.items()}
    assert expected.items() <= state_types(model).items()


@pytest.mark.parametrize("package, wanted", [(poptorch.optim, "f32"), (torch.optim, "f16")])
def test_states_of_half_weights(package, wanted):
    """float32 where poptorch.optim does not say otherwise, and as PyTorch has them else.

    PyTorch's weights and states are rounded the same way. Gradients are so large that float16 has
    enough bits for their squares, and eps is so large that a gradient of nearly zero, of which
    rounding decides the sign, does not move a weight as far as any other.
    """
    def adam(package, parameters):
        parameters = list(parameters)
        for parameter in parameters:
            parameter.register_hook(lambda gradient: gradient * 64)
        return package.Adam(parameters, lr=0.01, betas=(0.9, 0.9), eps=1.0)

    def rounded(step, ours, theirs, model):
        for parameter, state in theirs.state.items():
            moments = [state["exp_avg"], state["exp_avg_sq"]] if wanted == "f16" else []
            for tensor in (parameter.data, *moments):
                tensor.copy_(tensor.half())

    model, _, off = train(functools.partial(adam, package), functools.partial(adam, torch.optim),
                          dtype=F16, before_step=rounded)
    assert off < 5e-3 and state_types(model) == {"exp_avg": wanted, "exp_avg_sq": wanted}


@pytest.mark.parametrize("accum", [None, F16, F32])
@pytest.mark.parametrize("accumulation, replicas", [(4, 1), (1, 2)])
def test_the_type_in_which_gradients_are_added_up(accum, accumulation, replicas):
    """1 + 2**-11 is rounded to 1 in float16 after each addition; float32 keeps it."""
    net = torch.nn.Module()
    net.weight = torch.nn.Parameter(torch.ones(1, dtype=F16))
    net.forward = lambda x: poptorch.identity_loss((net.weight * x).sum(), "none")
    opts = options(accumulation, replicas)
    opts.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.0, accum_type=accum)
    micro = accumulation * replicas
    x = torch.full((micro, 1), 2.0**-11, dtype=F16)
    x[0] = 1.0
    found, _ = gradient(net, opts, optimizer, x)
    exact = 1.0 + (micro - 1) * 2.0**-11
    assert found["weight"].dtype is (accum or F32)
    assert found["weight"].item() == (1.0 if accum is F16 else exact)


def test_adamw_without_the_correction_of_its_bias():
    net = Net().double()
    weight = net.second.bias.detach().clone()
    optimizer = poptorch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.0,
                                     bias_correction=False)
    with poptorch.testing.wide():
        x, target = torch.randn(4, 6).double(), torch.randn(4, 3).double()
        found, _ = gradient(net, options(), optimizer, x, target)
    change = 0.01 * 0.1 * found["second.bias"] / (0.001**0.5 * found["second.bias"].abs() + 1e-8)
    torch.testing.assert_close(net.second.bias.detach(), weight - change)


BAD = {
    "loss_scaling": (0.0, "a finite number above 0"),
    "max_grad_norm": (-1.0, "a number above 0"),
    "velocity_scaling": (float("inf"), "a finite number above 0"),
    "accum_type": (torch.int32, "one of torch.float16, torch.bfloat16, torch.float32"),
    "velocity_accum_type": (torch.float64, "one of torch.float16"),
    "use_combined_accum": (1, "True or False"),
}


@pytest.mark.parametrize("name", BAD)
def test_values_that_a_setting_cannot_have(name):
    value, wanted = BAD[name]
    words = re.escape(f"[optim.SGD] {name} must be {wanted}")
    with pytest.raises(poptorch.Error, match=f"{words}.*got {re.escape(repr(value))}"):
        poptorch.optim.SGD(Net().parameters(), lr=0.1, **{name: value})
    net = Net()
    with pytest.raises(poptorch.Error, match=rf"{name} of parameter group 0 must be {wanted}"):
        poptorch.optim.SGD([{"params": net.parameters(), name: value}], lr=0.1)
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1)
    setattr(optimizer, name, value)
    with pytest.raises(poptorch.Error, match=f"{words}.*got {re.escape(repr(value))}"):
        poptorch.trainingModel(net, options(), optimizer)


def test_combined_with_nesterov():
    words = "use_combined_accum=True of parameter group 0 with nesterov=True"
    with pytest.raises(poptorch.Error, match=words):
        poptorch.optim.SGD(Net().parameters(), lr=0.1, momentum=0.9, nesterov=True,
                           use_combined_accum=True)


@pytest.mark.parametrize("name, value", [("accum_type", F16), ("velocity_accum_type", F16),
                                         ("use_combined_accum", True)])
def test_types_are_compiled_in(name, value):
    net = Net()
    make = functools.partial(poptorch.optim.SGD, [*net.parameters()], lr=0.1, momentum=0.5)
    model = poptorch.trainingModel(net, options(), make())
    model(torch.randn(4, 6), torch.randn(4, 3))
    with pytest.raises(ValueError, match=f"{name}=.* of parameter group 0 is already compiled"):
        model.setOptimizer(make(**{name: value}))


def combined(net_of, opts, steps=4, **settings):
    """Trains with one tensor for gradients and velocity; the parameters, and the text of the
    program."""
    torch.manual_seed(7)
    net = net_of()
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.05,
                                   **settings)
    model = poptorch.trainingModel(net, opts, optimizer)
    micro = opts.Training.gradient_accumulation * opts.replication_factor
    for _ in range(steps):
        model(torch.randn(4 * micro, 6), torch.randn(4 * micro, 3))
    found = {name: p.detach().clone() for name, p in net.named_parameters()}
    return found, optimizer, model


REDUCTIONS = [(poptorch.ReductionType.Mean, None),
              (poptorch.ReductionType.Mean, poptorch.MeanReductionStrategy.Running),
              (poptorch.ReductionType.Sum, None)]


@pytest.mark.sampled
@pytest.mark.parametrize("accumulation, replicas", [(3, 1), (2, 2), (1, 2)])
@pytest.mark.parametrize("kind, strategy", REDUCTIONS)
@pytest.mark.parametrize("more", [{}, {"maximize": True}, {"loss_scaling": 64.0}])
def test_gradients_that_are_added_to_velocities(accumulation, replicas, kind, strategy, more):
    """With every reduction it equals the separate variant."""
    results = []
    for is_combined in (False, True):
        opts = options(accumulation, replicas)
        opts.Training.accumulationAndReplicationReductionType(kind)
        if strategy is not None:
            opts.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
        settings = {"use_combined_accum": True, "velocity_scaling": 4.0} if is_combined else {}
        results.append(combined(Net, opts, **settings, **more))
    (separate, _, _), (together, optimizer, model) = results
    for name, value in separate.items():
        torch.testing.assert_close(together[name], value, rtol=1e-5, atol=1e-6, msg=name)
    assert optimizer.state_dict()["ipu_state"]["Step___first.bias"] == 4


def test_there_is_no_accumulator():
    """The loop over micro-batches carries what the state holds."""
    texts = []
    for is_combined in (False, True):
        net = Net()
        optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9,
                                       use_combined_accum=is_combined)
        captured = capture(net, (torch.ones(4, 6), torch.ones(4, 3)), {}, training=True)
        link = OptimizerLink(net, optimizer)
        text = translate(captured, StepSpec(training=True, accumulation=2), link).module.text()
        texts.append(text[text.index("graph iteration"):text.index("graph micro")])
    assert texts[0].count("full {") == 4 and "full {" not in texts[1]


class Grouped(torch.nn.Module):
    """A weight with a value for each group of replicas, and one that all share."""

    def __init__(self):
        super().__init__()
        self.own = torch.nn.Parameter(torch.zeros(2, 3))
        self.common = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x):
        y = self.own + self.common
        return poptorch.identity_loss((y.sin() + y * x).sum(), "mean")


@pytest.mark.parametrize("more", [{}, {"loss_scaling": 32.0},
                                  {"use_combined_accum": True, "velocity_scaling": 4.0}])
def test_weights_with_a_value_for_each_group(more):
    """N replicas of a sharded weight train like one model on the whole batch."""
    net, eager = Grouped(), Grouped()
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1, **more)
    model = poptorch.trainingModel(net, options(2, 4), optimizer)
    model.own.replicaGrouping(poptorch.CommGroupType.Consecutive, 2,
                              poptorch.VariableRetrievalMode.OnePerGroup)
    reference = torch.optim.SGD(eager.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(3):
        x = torch.randn(4, 2, 3)  # replicas, micro-batches
        model(x.reshape(-1))
        reference.zero_grad()
        y = eager.own.repeat_interleave(2, 0)[:, None] + eager.common
        ((y.sin() + y * x).sum() / 8).backward()
        reference.step()
    torch.testing.assert_close(net.own.detach(), eager.own.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(net.common.detach(), eager.common.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [None, "0.1", [0.1], torch.tensor([0.1, 0.2])], ids=str)
@pytest.mark.parametrize("kind", ["SGD", "Adam", "Adagrad", "Adafactor"])
def test_a_rate_that_is_no_number(kind, value):
    net = Net()
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, options(), optimizer)
    inputs = [torch.ones(2, 6), torch.ones(2, 3)]
    model(*inputs)
    before = [p.detach().clone() for p in net.parameters()]
    optimizer.param_groups[0]["lr"] = value
    words = re.escape(f"[setOptimizer] lr of a parameter group is {value!r}, expected a number")
    with pytest.raises(ValueError, match=words):
        model(*inputs)
    assert all(map(torch.equal, net.parameters(), before))
    optimizer.param_groups[0]["lr"] = torch.tensor(0.1)
    model(*inputs)
    assert not all(map(torch.equal, net.parameters(), before))


def test_betas_that_are_not_two_numbers():
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), betas=(0.8, 0.9))
    optimizer.param_groups[0]["betas"] = (0.8,)
    model = poptorch.trainingModel(net, options(), optimizer)
    with pytest.raises(ValueError, match=r"betas of a parameter group is \(0.8,\), expected n"):
        model(torch.ones(2, 6), torch.ones(2, 3))
