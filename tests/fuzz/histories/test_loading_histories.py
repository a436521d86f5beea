"""Random histories of states that are saved and loaded, compared with an eager loop.

Two executors train the same parameters under other names, and one a part of them; between their
steps the host makes some, with all gradients or a part of them. Each optimizer is loaded with what
another one saved, before or after a program knows the names of its parameters.
"""

import copy
import pickle

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import poptorch
from tests.fuzz.judge import attempt, budget
from tests.helpers import quiet_options, relative_error
from tests.optim.common import Outer, written

STEPS = 16  # of a history
KINDS = {
    "momentum": ("SGD", {"lr": 0.25, "momentum": 0.5}, {}),
    "dampened": ("SGD", {"lr": 0.25, "momentum": 0.5, "dampening": 0.25, "weight_decay": 0.125},
                 {}),
    "combined": ("SGD", {"lr": 0.25, "momentum": 0.5, "weight_decay": 0.125},
                 {"use_combined_accum": True, "velocity_scaling": 4.0}),
    "adam": ("Adam", {"lr": 0.125, "betas": (0.75, 0.875)}, {}),
    "rmsprop": ("RMSprop", {"lr": 0.125, "momentum": 0.5}, {}),
}
WAYS = {"deepcopy": copy.deepcopy, "file": written,
        "pickle": lambda value: pickle.loads(pickle.dumps(value))}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.second = torch.nn.Linear(3, 3)

    def forward(self, x):
        y = self.second(torch.tanh(self.first(x)))
        return poptorch.identity_loss(y.square() + y, "mean")


class Part(torch.nn.Module):
    """Some of the parameters, under the names of others."""

    def __init__(self, net):
        super().__init__()
        self.first = net.second

    def forward(self, x):
        y = self.first(x)
        return poptorch.identity_loss(y.square() + y, "mean")


MODULES = (lambda net: net, Outer, Part)
which = st.integers(0, len(MODULES) - 1)


class Histories(RuleBasedStateMachine):
    """``optimizers`` is the pair of ours and eager's, ``kept`` has states that were saved of it."""

    @initialize(seed=st.integers(0, 2**20), kind=st.sampled_from(sorted(KINDS)),
                is_torch=st.booleans(), looks=st.booleans())
    def begin(self, seed, kind, is_torch, looks):
        torch.manual_seed(seed)
        name, self.settings, self.own = KINDS[kind]
        self.eager_class = getattr(torch.optim, name)
        self.ours_class = self.eager_class if is_torch else getattr(poptorch.optim, name)
        self.own, self.looks = {} if is_torch else dict(self.own), looks
        self.ours = Net().double()
        self.eager = copy.deepcopy(self.ours)
        self.modules = [[make(net) for make in MODULES] for net in (self.ours, self.eager)]
        self.optimizers = self.new_pair()
        self.kept = []
        self.models = [None] * len(MODULES)
        self.wide = poptorch.testing.wide()
        self.wide.__enter__()

    def teardown(self):
        if not hasattr(self, "wide"):
            return
        try:
            for number in range(len(MODULES)):
                self.train(number, 1)
            self.compare()
            self.destroy_all()
            self.compare()
        finally:
            self.destroy_all()
            self.wide.__exit__(None, None, None)

    def new_pair(self):
        return (self.ours_class(self.ours.parameters(), **self.settings, **self.own),
                self.eager_class(self.eager.parameters(), **self.settings))

    def destroy_all(self):
        for model in filter(None, self.models):
            model.destroy()
        self.models = [None] * len(MODULES)

    def wrapped(self, number):
        if self.models[number] is None:
            self.models[number] = poptorch.trainingModel(self.modules[0][number], quiet_options(),
                                                         self.optimizers[0])
        return self.models[number]

    # -- comparisons ---------------------------------------------------------------------------

    def near(self, ours, expected, what):
        error = relative_error(ours.detach(), expected.detach())
        assert error < 1e-9, f"{what}: error {error}"

    def compare(self):
        for name, value in self.eager.named_parameters():
            self.near(self.ours.get_parameter(name), value, name)
        found, expected = (optimizer.state_dict()["state"] for optimizer in self.optimizers)
        assert found.keys() == expected.keys()
        for number, entry in expected.items():
            assert found[number].keys() == entry.keys()
            for key, value in entry.items():
                self.near(found[number][key], value, f"{number} {key}")

    def done(self):
        if self.looks:
            self.compare()

    # -- steps ---------------------------------------------------------------------------------

    def eager_step(self, side, number, x, without=()):
        optimizer = self.optimizers[side]
        optimizer.zero_grad()
        self.modules[side][number](x).backward()
        for index, parameter in enumerate((self.ours, self.eager)[side].parameters()):
            if index in without:
                parameter.grad = None
        optimizer.step()
        optimizer.zero_grad()

    @rule(number=which, times=st.integers(1, 2))
    def train(self, number, times):
        model = self.wrapped(number)
        for _ in range(times):
            x = torch.randn(4, 3, dtype=torch.float64)
            _, error = attempt(model, x)
            assert error is None, str(error)
            self.eager_step(1, number, x)
        self.done()

    @rule(number=which, without=st.sets(st.integers(0, 3), max_size=2))
    def step_on_the_host(self, number, without):
        x = torch.randn(4, 3, dtype=torch.float64)
        for side in (0, 1):
            self.eager_step(side, number, x, without)
        for model in filter(None, self.models):
            if model.isCompiled():
                model.copyWeightsToDevice()
        self.done()

    # -- executors -----------------------------------------------------------------------------

    @rule(number=which)
    def compile(self, number):
        self.wrapped(number).compile(torch.zeros(4, 3, dtype=torch.float64))
        self.done()

    @rule(number=which)
    def destroy(self, number):
        if self.models[number] is not None:
            self.models[number].destroy()
            self.models[number] = None
        self.done()

    @precondition(lambda self: self.own)
    @rule(scale=st.sampled_from([1.0, 0.5, 16.0]), sets=st.booleans())
    def scale_velocities(self, scale, sets):
        self.own["velocity_scaling"] = self.optimizers[0].velocity_scaling = scale
        if sets:
            for model in filter(None, self.models):
                model.setOptimizer(self.optimizers[0])
        self.done()

    # -- optimizers ----------------------------------------------------------------------------

    @rule(way=st.sampled_from(sorted(WAYS)))
    def keep_state(self, way):
        self.kept.append([WAYS[way](optimizer.state_dict()) for optimizer in self.optimizers])

    @rule(data=st.data(), takes_over=st.booleans())
    def load_into_a_new_one(self, data, takes_over):
        """Which the executors get, or new ones."""
        if not self.kept or data.draw(st.booleans()):
            self.keep_state("deepcopy")
        states = data.draw(st.sampled_from(self.kept))
        # Where ours has no state it keeps the former one; eager's starts again.
        has_all = len(states[1]["state"]) == len([*self.eager.parameters()])
        if not (takes_over and has_all):
            self.destroy_all()
        self.optimizers = self.new_pair()
        for optimizer, state in zip(self.optimizers, states):
            optimizer.load_state_dict(copy.deepcopy(state))
        for model in filter(None, self.models):
            model.setOptimizer(self.optimizers[0])
        self.done()

    @rule()
    def load_again(self):
        for optimizer in self.optimizers:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        self.done()

    @rule(what=st.sampled_from(["all", 0, 2]))
    def clear(self, what):
        for optimizer, net in zip(self.optimizers, (self.ours, self.eager)):
            if what == "all":
                optimizer.state.clear()
            else:
                optimizer.state.pop([*net.parameters()][what], None)
        self.done()


TestHistories = Histories.TestCase
TestHistories.settings = budget(12, stateful_step_count=STEPS)
