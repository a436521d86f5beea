"""200 steps of each optimizer on recorded gradients: parameters and states within 1e-5 of a float64
reference, or 4 times as far from it as the reference in float32 is, relative to the largest value
that the tensor had: a number that has come close to 0 keeps the rounding of larger ones. The
reference is PyTorch's own where it exists, else the published formula."""

import functools
import math

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

STEPS, LIMIT = 200, 1e-5
OURS = {
    "sgd": ("SGD", {"lr": 0.03}),
    "momentum": ("SGD", {"lr": 0.03, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}),
    "nesterov": ("SGD", {"lr": 0.03, "momentum": 0.9, "nesterov": True, "maximize": True}),
    "adam": ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
    "amsgrad": ("Adam", {"lr": 0.01, "amsgrad": True}),
    "adamw": ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
    "rmsprop": ("RMSprop", {"lr": 0.01}),
    "rmsprop_momentum": ("RMSprop", {"lr": 0.01, "alpha": 0.9, "momentum": 0.9, "eps": 1e-3,
                                     "weight_decay": 0.1}),
    "rmsprop_centered": ("RMSprop", {"lr": 0.01, "centered": True, "maximize": True}),
    "rmsprop_all": ("RMSprop", {"lr": 0.01, "centered": True, "momentum": 0.5}),
    "tf": ("RMSprop", {"lr": 0.01, "use_tf_variant": True, "eps": 1e-2}),
    "tf_all": ("RMSprop", {"lr": 0.01, "use_tf_variant": True, "centered": True, "momentum": 0.9,
                           "weight_decay": 0.1, "maximize": True}),
    "lamb": ("LAMB", {"lr": 0.01, "weight_decay": 0.1}),
    "lamb_biased": ("LAMB", {"lr": 0.01, "bias_correction": False, "betas": (0.8, 0.99)}),
    "lamb_limited": ("LAMB", {"lr": 0.01, "max_weight_norm": 1.5}),
}
TORCHS = {
    "adagrad": ("Adagrad", {"lr": 0.1}),
    "adagrad_all": ("Adagrad", {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1,
                                "initial_accumulator_value": 0.5, "maximize": True}),
    "adadelta": ("Adadelta", {}),
    "adadelta_all": ("Adadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1, "maximize": True}),
    "adamax": ("Adamax", {}),
    "adamax_all": ("Adamax", {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.1,
                              "maximize": True}),
    "nadam": ("NAdam", {}),
    "nadam_all": ("NAdam", {"lr": 0.01, "weight_decay": 0.1, "momentum_decay": 0.1,
                            "decoupled_weight_decay": True, "maximize": True}),
    "radam": ("RAdam", {"lr": 0.01}),
    "radam_all": ("RAdam", {"lr": 0.01, "betas": (0.9, 0.9), "weight_decay": 0.1,
                            "decoupled_weight_decay": True, "maximize": True}),
    "rprop": ("Rprop", {}),
    "rprop_all": ("Rprop", {"lr": 0.02, "etas": (0.4, 1.3), "step_sizes": (1e-3, 0.1),
                            "maximize": True}),
    "asgd": ("ASGD", {}),
    "asgd_all": ("ASGD", {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 20, "weight_decay": 0.1,
                          "maximize": True}),
    "adafactor": ("Adafactor", {}),
    "adafactor_all": ("Adafactor", {"lr": 0.05, "beta2_decay": -0.5, "eps": (1e-3, 1e-2), "d": 1.5,
                                    "weight_decay": 0.1, "maximize": True}),
}
KINDS = OURS | TORCHS
SAMPLE = ["rmsprop_all", "tf_all", "lamb", "nadam", "asgd_all", "adafactor", "rprop"]


class Recorded(torch.nn.Module):
    """Parameters of several sizes; the gradient of each is the sum over its input's rows."""

    def __init__(self):
        super().__init__()
        self.matrix = torch.nn.Parameter(torch.randn(7, 5))
        self.images = torch.nn.Parameter(torch.randn(3, 2, 3, 3))
        self.vector = torch.nn.Parameter(torch.randn(6))
        self.number = torch.nn.Parameter(torch.randn(()))

    def forward(self, *gradients):
        products = [(p * g).sum() for p, g in zip(self.parameters(), gradients)]
        return poptorch.identity_loss(sum(products), "none")


def tf_rmsprop(p, g, state, group):
    """TensorFlow's RMSprop, by its documentation."""
    g = (-g if group["maximize"] else g) + group["weight_decay"] * p
    if not state:
        state.update(square_avg=torch.ones_like(p))
        state.update(momentum_buffer=torch.zeros_like(p)) if group["momentum"] else None
        state.update(grad_avg=torch.zeros_like(p)) if group["centered"] else None
    decay = group["alpha"]
    state["square_avg"] = decay * state["square_avg"] + (1 - decay) * g ** 2
    scale = state["square_avg"] + group["eps"]
    if group["centered"]:
        state["grad_avg"] = decay * state["grad_avg"] + (1 - decay) * g
        scale = scale - state["grad_avg"] ** 2
    step = group["lr"] * g / scale.sqrt()
    if group["momentum"]:
        step = state["momentum_buffer"] = group["momentum"] * state["momentum_buffer"] + step
    p -= step


def lamb(p, g, state, group):
    """Algorithm 2 of arXiv 1904.00962, with a limit for the norm of the parameter."""
    if not state:
        state.update(t=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
    state["t"] += 1
    first, second = group["betas"]
    m = state["exp_avg"] = first * state["exp_avg"] + (1 - first) * g
    v = state["exp_avg_sq"] = second * state["exp_avg_sq"] + (1 - second) * g * g
    if group["bias_correction"]:
        m, v = m / (1 - first ** state["t"]), v / (1 - second ** state["t"])
    r = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
    limit = math.inf if group["max_weight_norm"] is None else group["max_weight_norm"]
    norms = min(p.norm().item(), limit), r.norm().item()
    p -= group["lr"] * (norms[0] / norms[1] if all(norms) else 1.0) * r


class Published:
    """An optimizer whose update is one of the functions above."""

    def __init__(self, update, groups, settings):
        self.update = update
        self.param_groups = [{**settings, **group} for group in groups]
        self.state = {}

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.update(p, p.grad, self.state.setdefault(p, {}), group)


def groups_of(net):
    return [{"params": [net.matrix, net.number]},
            {"params": [net.images, net.vector], "lr": 0.02}]


class Reference:
    """A net and its optimizer, PyTorch's own or a published one, that begin as another pair."""

    def __init__(self, kind, dtype, net, optimizer):
        name, settings = KINDS[kind]
        self.net = Recorded().to(dtype)
        self.net.load_state_dict(net.state_dict())
        update = tf_rmsprop if settings.get("use_tf_variant") else lamb if name == "LAMB" else None
        if update is not None:
            self.optimizer = Published(update, groups_of(self.net), optimizer.defaults)
        else:
            self.optimizer = getattr(torch.optim, name)(groups_of(self.net), **settings)
        self.largest = {}
        self.note_norms()

    def step(self, gradients):
        for p, g in zip(self.net.parameters(), gradients):
            p.grad = g.to(p.dtype)
        self.optimizer.step()
        self.note_norms()

    def note_norms(self):
        for name, entry in self.values().items():
            for key, value in entry.items():
                if isinstance(value, torch.Tensor):
                    norm = value.norm().item() if value.is_floating_point() else 0.0
                    self.largest[name, key] = max(norm, self.largest.get((name, key), 0.0))

    def values(self):
        """The parameters, and the tensors of the state of each, by the parameters' names."""
        found = {name: (p.detach(), dict(self.optimizer.state.get(p, {})))
                 for name, p in self.net.named_parameters()}
        return {name: {"": p, **entry} for name, (p, entry) in found.items()}


def begin(kind):
    """A net and its optimizer in float32, and the references in float64 and in float32."""
    name, settings = KINDS[kind]
    net = Recorded()
    optimizer = getattr(poptorch.optim if kind in OURS else torch.optim, name)(groups_of(net),
                                                                               **settings)
    return net, optimizer, [Reference(kind, dtype, net, optimizer)
                            for dtype in (torch.float64, torch.float32)]


def recorded(net, rows):
    """Gradients that differ in size, some of them zero. Sums of rows are exact in any order: rows
    that cancel would else leave an error that is none of the optimizer's."""
    scale = 2.0 ** torch.randint(-17, -6, ()).item()
    return [scale * (1024 * torch.randn(rows, *p.shape)).round()
            * (torch.rand(rows, *p.shape) > 0.1) for p in net.parameters()]


def check(net, optimizer, references):
    state = optimizer.state_dict()["state"]
    places = [p for group in optimizer.param_groups for p in group["params"]]
    names = {id(p): name for name, p in net.named_parameters()}
    exact, single = [reference.values() for reference in references]
    for number, parameter in enumerate(places):
        name = names[id(parameter)]
        ours = {"": parameter.detach(), **state.get(number, {})}
        assert ours.keys() - {"step"} == exact[name].keys() - {"step", "t"}
        for key, expected in exact[name].items():
            if isinstance(expected, torch.Tensor):
                assert ours[key].shape == expected.shape, (name, key)
                assert ours[key].dtype is torch.float32, (name, key)
                largest = references[0].largest[name, key]
                error, allowed = (((value.double() - expected).norm() / (largest or 1.0)).item()
                                  for value in (ours[key], single[name][key]))
                assert error < max(LIMIT, 4 * allowed), (name, key)


def train(kind, combine=None, rows=1, steps=STEPS, **settings):
    net, optimizer, references = begin(kind)
    model = poptorch.trainingModel(net, quiet_options(**settings), optimizer)
    for step in range(steps):
        for each in (optimizer, *(reference.optimizer for reference in references)):
            for group in each.param_groups:
                group["lr"] *= 0.99 if step % 10 == 9 else 1.0
        gradients = recorded(net, rows)
        model(*gradients)
        combined = [(combine or functools.partial(torch.sum, dim=0))(g.double())
                    for g in gradients]
        for reference in references:
            reference.step(combined)
    check(net, optimizer, references)
    return model


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_each_step_is_that_of_the_reference(kind):
    train(kind)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", SAMPLE)
def test_with_accumulation_and_replicas(kind):
    train(kind, functools.partial(torch.mean, dim=0), rows=6, steps=60,
          Training__gradientAccumulation=3, replicationFactor=2)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", SAMPLE)
def test_with_a_sum_over_replicas(kind):
    train(kind, rows=4, steps=60, Training__gradientAccumulation=2, replicationFactor=2,
          Training__accumulationAndReplicationReductionType=poptorch.ReductionType.Sum)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", sorted(TORCHS) + ["rmsprop_all"])
def test_training_goes_on_from_the_cpu_and_back(kind):
    net, optimizer, references = begin(kind)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    for step in range(24):
        gradients = recorded(net, 1)
        if step % 8 < 4:
            model(*gradients)
        else:
            for p, g in zip(net.parameters(), gradients):
                p.grad = g[0]
            optimizer.step()
            model.copyWeightsToDevice()
        for reference in references:
            reference.step([g[0] for g in gradients])
    check(net, optimizer, references)
    steps = {float(entry["step"]) for entry in optimizer.state_dict()["state"].values()}
    assert steps == {24.0}


def test_a_norm_of_zero_takes_the_update_as_it_is():
    net = Recorded()
    with torch.no_grad():
        net.matrix.zero_()
    optimizer = poptorch.optim.LAMB(net.parameters(), lr=0.5, betas=(0.0, 0.0), eps=1e-30)
    gradients = [torch.ones(1, *p.shape) for p in net.parameters()]
    gradients[2].zero_()
    before = net.vector.detach().clone()
    poptorch.trainingModel(net, quiet_options(), optimizer)(*gradients)
    assert torch.equal(net.matrix, torch.full((7, 5), -0.5))
    assert torch.equal(net.vector, before)
