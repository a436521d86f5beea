"""Histories of what a program depends on: after each change, calls return what eager returns.

A training and an inference executor share one module. Between their calls attributes, globals,
closures, hooks, layers, modes, shapes and values of buffers change, and models are saved and
loaded.
"""

import copy

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import poptorch
from tests.fuzz.judge import budget
from tests.helpers import quiet_options

FACTOR = 1.0
SETTINGS = {"shift": 0.0}


def around():
    scale = 1.0

    def change(value):
        nonlocal scale
        scale = value

    return lambda y: y * scale, change


FUNCTION, CHANGE = around()


def hook(layer, args, out):
    return out * 0.5


def gradient_hook(gradient):
    return gradient * 0.5


class Config:
    def __init__(self):
        self.power, self.sizes = 1, [1.0]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3)])
        self.norm, self.act, self.config = nn.BatchNorm1d(3), nn.Tanh(), Config()
        self.register_buffer("clip", torch.tensor(4.0))
        self.scale, self.table = 1.0, {"shift": 0.0}
        self.plain = torch.ones(3)

    def forward(self, x, target=None, more=0.0):
        y = x.float()
        for layer in self.layers:
            y = layer(y)
        y = self.act(self.norm(y)) * self.scale + self.table["shift"] + SETTINGS["shift"] + more
        y = FUNCTION(y) * FACTOR * self.plain + sum(self.config.sizes) ** self.config.power
        if self.clip > 2:
            y = y * 0.5
        if target is None:
            return y
        return y, poptorch.identity_loss((y - target).square().mean(), "none")


VALUES = st.sampled_from([0.5, 1.0, 2.0])
BATCHES = st.sampled_from([3, 4, 5])
STEPS = st.one_of(
    st.tuples(st.just("train"), BATCHES), st.tuples(st.just("train"), BATCHES),
    st.tuples(st.just("infer"), BATCHES), st.tuples(st.just("infer"), BATCHES),
    st.tuples(st.just("integers"), BATCHES), st.tuples(st.just("more"), VALUES),
    *(st.tuples(st.just(what), VALUES) for what in (
        "attribute", "item", "config", "append", "global", "global item", "closure", "plain",
        "buffer")),
    st.tuples(st.sampled_from(["hook", "gradient hook", "save", "load state"]), st.none()),
    st.tuples(st.just("layer"), st.booleans()), st.tuples(st.just("act"), st.booleans()),
    st.tuples(st.just("mode"), st.booleans()))


class History:
    """The executors, and a module that eager runs too."""

    def __init__(self, seed: int):
        torch.manual_seed(seed)
        self.net = Net()
        self.eager = copy.deepcopy(self.net)
        self.own = torch.optim.SGD(self.eager.parameters(), 0.05, momentum=0.9)
        self.model = poptorch.trainingModel(
            self.net.train(), self.options(),
            torch.optim.SGD(self.net.parameters(), 0.05, momentum=0.9))
        self.is_training = False
        self.wrap_inference()

    def options(self):
        return quiet_options().recompilation(shapes=True, limit=99)

    def wrap_inference(self):
        self.inference = poptorch.inferenceModel(self.net.eval(), self.options())
        self.inference.train(self.is_training)

    def both(self, change):
        for net in (self.net, self.eager):
            change(net)

    def step(self, what, value):
        handler = getattr(self, what.replace(" ", "_"), None)
        if handler is not None:
            handler(value)
        else:
            self.both(CHANGES[what](value))

    def train(self, batch):
        x, target = torch.randn(batch, 3), torch.randn(batch, 3)
        found = self.model(x, target)
        self.eager.train()
        self.own.zero_grad()
        expected = self.eager(x, target)
        expected[1].backward()
        self.own.step()
        check(found, expected)

    def infer(self, batch, x=None, **more):
        x = torch.randn(batch, 3) if x is None else x
        found = self.inference(x, **more)
        with torch.no_grad():
            check([found], [self.eager.train(self.is_training)(x, **more)])

    def integers(self, batch):
        self.infer(batch, torch.randint(5, (batch, 3)))

    def more(self, value):
        self.infer(2, more=value)

    def mode(self, mode):
        self.is_training = mode
        self.inference.train(mode)

    def layer(self, is_added):
        if is_added:
            layer = nn.Linear(3, 3)
            self.net.layers.append(layer)
            self.eager.layers.append(copy.deepcopy(layer))
        elif len(self.net.layers) > 1:
            self.both(lambda net: net.layers.pop(-1))

    def save(self, _):
        self.train(3)  # what changed since the last call would not match the file
        path = self.model.save(self.folder / "model.poptorch")
        self.model = poptorch.load(path)
        self.net = self.model.model
        self.wrap_inference()

    def load_state(self, _):
        state = {key: value.clone() for key, value in self.eager.state_dict().items()}
        state["norm.bias"] += 0.25
        self.model.load_state_dict(state)
        self.eager.load_state_dict(state)

    def end(self):
        found = self.net.state_dict()
        for key, value in self.eager.state_dict().items():
            torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-4)


def set_global(name, value):
    globals()[name] = value


def toggle(hooks, register):
    if hooks:
        hooks.clear()
    else:
        register()


CHANGES = {
    "attribute": lambda value: lambda net: setattr(net, "scale", value),
    "item": lambda value: lambda net: net.table.update(shift=value),
    "config": lambda value: lambda net: setattr(net.config, "power", int(value)),
    "append": lambda value: lambda net: net.config.sizes.__setitem__(slice(1, 2), [value]),
    "global": lambda value: lambda net: set_global("FACTOR", value),
    "global item": lambda value: lambda net: SETTINGS.update(shift=value),
    "closure": lambda value: lambda net: CHANGE(value),
    "plain": lambda value: lambda net: net.plain.fill_(value),
    "buffer": lambda value: lambda net: net.clip.fill_(value * 2),
    "act": lambda value: lambda net: setattr(net, "act", nn.ReLU() if value else nn.Tanh()),
    "hook": lambda value: lambda net: toggle(
        net.act._forward_hooks, lambda: net.act.register_forward_hook(hook)),
    "gradient hook": lambda value: lambda net: toggle(
        net.norm.weight._backward_hooks, lambda: net.norm.weight.register_hook(gradient_hook)),
}


def check(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=1e-3, atol=1e-4)


@budget(4)
@given(seed=st.integers(0, 2**31), steps=st.lists(STEPS, min_size=4, max_size=16))
def test_calls_return_what_eager_returns(tmp_path_factory, seed, steps):
    history = History(seed)
    history.folder = tmp_path_factory.mktemp("history")
    try:
        for what, value in steps:
            history.step(what, value)
        for what in ("train", "infer"):
            history.step(what, 3)
        history.end()
    finally:
        set_global("FACTOR", 1.0), SETTINGS.update(shift=0.0), CHANGE(1.0)
        history.model.destroy(), history.inference.destroy()
