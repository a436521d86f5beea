"""Random histories of optimizers and of their executors, compared with eager PyTorch.

Each executor trains a part of its own; an optimizer holds parameters of several. Whatever happens,
``optimizer.state`` and ``state_dict()`` show what eager training has, and training goes on from it.
"""

import collections
import contextlib
import copy
import gc
import pickle

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import poptorch
from poptorch._optimizer.formulas import host_step
from poptorch._optimizer.rows import LAMB, spec_of
from tests.fuzz.judge import FACTOR, attempt, budget
from tests.helpers import quiet_options, relative_error

SIZE, ROWS, PARTS, MOST = 3, 4, 3, 4  # MOST: optimizers
STEPS = 20  # of a history
HISTORIES = 4 if FACTOR == 1 else 12
KINDS = {
    "sgd": ("SGD", {"lr": 0.125}),
    "momentum": ("SGD", {"lr": 0.125, "momentum": 0.75, "dampening": 0.25, "weight_decay": 0.125}),
    "adam": ("Adam", {"lr": 0.0625, "betas": (0.75, 0.875)}),
    "amsgrad": ("Adam", {"lr": 0.0625, "amsgrad": True}),
    "adamw": ("AdamW", {"lr": 0.0625}),
    "rmsprop": ("RMSprop", {"lr": 0.0625, "momentum": 0.5, "centered": True}),
    "tf": ("RMSprop", {"lr": 0.0625, "momentum": 0.5, "use_tf_variant": True}),
    "lamb": ("LAMB", {"lr": 0.0625, "weight_decay": 0.125}),
    "adagrad": ("Adagrad", {"lr": 0.125, "initial_accumulator_value": 0.5}),
    "adadelta": ("Adadelta", {"lr": 1.0, "maximize": True}),
    "adamax": ("Adamax", {"lr": 0.0625}),
    "nadam": ("NAdam", {"lr": 0.0625}),
    "radam": ("RAdam", {"lr": 0.0625, "betas": (0.75, 0.875)}),
    "rprop": ("Rprop", {"lr": 0.0625}),
    "asgd": ("ASGD", {"lr": 0.125, "lambd": 0.125, "t0": 4}),
    "adafactor": ("Adafactor", {"lr": 0.0625}),
}
# What is around the update: limits of gradients, options of the executor, settings of ours.
AROUND = {
    "nothing": ({}, {}, {}),
    "scale": ({}, {}, {"loss_scaling": 8.0}),
    "norm": ({"norm": 0.03125}, {"norm": 0.03125}, {"loss_scaling": 1000.0}),
    "value": ({"value": 0.015625}, {"value": 0.015625}, {}),
    "automatic": ({}, {"automatic": True}, {"loss_scaling": 64.0}),
}
# They have float32 states for float64 weights, until load_state_dict of PyTorch makes all
# of that type; the device does not.
SINGLE = {"nadam", "asgd"}
# They divide by a difference of averages, which makes roundings larger.
CENTERED = {"rmsprop", "tf"}
COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda value: pickle.loads(pickle.dumps(value))}
numbers = st.integers(0, PARTS - 1)


class Part(torch.nn.Linear):
    def forward(self, x):
        return poptorch.identity_loss(torch.tanh(super().forward(x)).square(), "mean")


class TfRMSprop(torch.optim.RMSprop):
    """The TensorFlow variant without what poptorch.optim adds."""

    def __init__(self, groups, use_tf_variant, **settings):
        super().__init__([{**group, "use_tf_variant": use_tf_variant} for group in groups],
                         **settings)
        self.defaults["use_tf_variant"] = use_tf_variant

    def step(self):
        host_step(self, spec_of(self), None)


def eager_class(name, settings):
    if "use_tf_variant" in settings:
        return TfRMSprop
    return LAMB if name == "LAMB" else getattr(torch.optim, name)


def parameters(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


class Histories(RuleBasedStateMachine):
    """Everything is there twice: ``ours`` and ``eager`` are parts, and ``optimizers`` holds pairs
    of an optimizer and eager's; ``used[i]`` is the number of the one that executor ``i`` has."""

    @initialize(seed=st.integers(0, 2**20), kind=st.sampled_from(sorted(KINDS)),
                is_torch=st.booleans(), looks=st.booleans(), split=st.integers(1, PARTS),
                around=st.sampled_from(sorted(AROUND)))
    def begin(self, seed, kind, is_torch, looks, split, around):
        self.around = AROUND[around]
        torch.manual_seed(seed)
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(poptorch.testing.wide())
        self.kind, self.looks = kind, looks
        name, settings = KINDS[kind]
        is_ours = name == "LAMB" or "use_tf_variant" in settings
        self.is_torch = not hasattr(poptorch.optim, name) or (is_torch and not is_ours)
        self.ours = torch.nn.ModuleList(Part(SIZE, SIZE) for _ in range(PARTS)).double()
        self.eager = copy.deepcopy(self.ours)
        self.used = [int(number >= split) for number in range(PARTS)]
        chosen = [[n for n in range(PARTS) if self.used[n] == which] for which in (0, 1)]
        self.optimizers = [self.new_pair(numbers) for numbers in chosen if numbers]
        self.kept = []
        self.models = [None] * PARTS
        for number in range(PARTS):
            self.wrap(number)

    def teardown(self):
        if not hasattr(self, "stack"):
            return
        with self.stack:
            for number in range(PARTS):  # what went wrong shows in a step
                self.call(number)
            self.compare()
            for model in self.models:
                model.destroy()
            self.compare()

    def new_pair(self, chosen):
        name, settings = KINDS[self.kind]
        package = torch.optim if self.is_torch else poptorch.optim

        def groups(parts):
            # Of the last part the bias comes later, as a group of its own.
            held = [[parts[n].weight, parts[n].bias] for n in chosen]
            return [{"params": sum(held, [])[:-1]}]

        ours = {} if self.is_torch else self.around[2]
        return (getattr(package, name)(groups(self.ours), **settings, **ours),
                eager_class(name, settings)(groups(self.eager), **settings))

    def wrap(self, number):
        optimizer = self.optimizers[self.used[number]][0]
        given = dict(self.around[1])
        opts = quiet_options()
        opts.Training.setAutomaticLossScaling(given.pop("automatic", False))
        opts.Training.gradientClipping(**given)
        self.models[number] = poptorch.trainingModel(self.ours[number], opts, optimizer)

    def done(self):
        if self.looks:
            self.compare()

    # -- comparisons ---------------------------------------------------------------------------

    def near(self, ours, expected, what):
        is_single = self.kind in SINGLE and expected.dim() == 0
        assert is_single or ours.dtype is expected.dtype, what
        error = relative_error(ours.detach(), expected.detach())
        limit = 1e-5 if self.kind in SINGLE else 1e-6 if self.kind in CENTERED else 1e-9
        assert error < limit, f"{what}: error {error}"

    def compare(self):
        for name, value in self.eager.named_parameters():
            self.near(self.ours.get_parameter(name), value, name)
        for optimizer, reference in self.optimizers:
            found, expected = optimizer.state_dict()["state"], reference.state_dict()["state"]
            if self.is_torch:  # copies that no executor has
                found.pop("loss_scale", None)
            assert found.keys() == expected.keys()
            for number, entry in expected.items():
                assert found[number].keys() == entry.keys()
                for key, value in entry.items():
                    self.near(found[number][key], value, f"{number} {key}")

    @precondition(lambda self: not self.looks)
    @rule()
    def look(self):
        self.compare()

    # -- steps ---------------------------------------------------------------------------------

    def eager_step(self, parts, optimizer, number, x, limits=()):
        optimizer.zero_grad()
        loss = parts[number](x)
        loss.backward()
        for name in limits:
            clip = torch.nn.utils.clip_grad_norm_ if name == "norm" else \
                torch.nn.utils.clip_grad_value_
            clip(parameters(optimizer), limits[name])
        optimizer.step()
        for part in parts:
            part.zero_grad()
        return loss

    def call(self, number):
        x = torch.randn(ROWS, SIZE, dtype=torch.float64)
        loss, error = attempt(self.models[number], x)
        assert error is None, str(error)
        reference = self.optimizers[self.used[number]][1]
        self.near(loss, self.eager_step(self.eager, reference, number, x, self.around[0]), "loss")

    @rule(number=numbers, times=st.integers(1, 3), factor=st.sampled_from([1.0, 0.5, 2.0]),
          sets=st.booleans())
    def train(self, number, times, factor, sets):
        pair = self.optimizers[self.used[number]]
        for optimizer in pair:
            optimizer.param_groups[-1]["lr"] *= factor
        if sets:
            self.models[number].setOptimizer(pair[0])
        for _ in range(times):
            self.call(number)
        self.done()

    @rule(order=st.permutations(range(PARTS)))
    def train_all(self, order):
        for number in order:
            self.call(number)
        self.done()

    @rule(number=numbers)
    def step_on_the_cpu(self, number):
        x = torch.randn(ROWS, SIZE, dtype=torch.float64)
        optimizer, reference = self.optimizers[self.used[number]]
        self.eager_step(self.ours, optimizer, number, x)
        self.eager_step(self.eager, reference, number, x)
        if self.models[number].isCompiled():
            self.models[number].copyWeightsToDevice()
        self.done()

    # -- executors -----------------------------------------------------------------------------

    @rule(number=numbers, compiles=st.booleans())
    def destroy(self, number, compiles):
        self.models[number].destroy()
        if compiles:
            self.models[number].compile(torch.zeros(ROWS, SIZE, dtype=torch.float64))
        self.done()

    @rule(number=numbers, attaches=st.booleans())
    def detach(self, number, attaches):
        model = self.models[number]
        if model.isAttachedToDevice():
            model.detachFromDevice()
        if model.isCompiled() and attaches:
            model.attachToDevice()
        self.done()

    @rule(number=numbers, forgets=st.booleans())
    def wrap_again(self, number, forgets):
        if forgets:
            getattr(self.ours[number], "destroy", bool)()  # a method of wrapped modules only
            self.models[number] = None
            gc.collect()
        else:
            self.models[number].destroy()
        self.wrap(number)
        self.done()

    @precondition(lambda self: len(self.optimizers) < MOST)
    @rule(number=numbers, lr=st.sampled_from([0.03125, 0.25]))
    def set_another(self, number, lr):
        """Which goes on with the state of the former."""
        name, settings = KINDS[self.kind]
        old, old_reference = self.optimizers[self.used[number]]
        grouped = [[dict(params=list(group["params"])) for group in optimizer.param_groups]
                   for optimizer in (old, old_reference)]
        ours = {} if self.is_torch else self.around[2]
        optimizer = type(old)(grouped[0], **{**settings, **ours, "lr": lr})
        reference = eager_class(name, settings)(grouped[1], **{**settings, "lr": lr})
        _, error = attempt(self.models[number].setOptimizer, optimizer)
        if error is not None:  # the former one has a group that the program does not have yet
            assert "is already compiled" in str(error)
            return
        own, former = reference.state_dict(), copy.deepcopy(old_reference.state_dict())
        reference.load_state_dict({**own, "state": {**own["state"], **former["state"]}})
        self.optimizers.append((optimizer, reference))
        self.used[number] = len(self.optimizers) - 1
        self.done()

    # -- optimizers ----------------------------------------------------------------------------

    @rule(data=st.data())
    def add_group(self, data):
        optimizer, reference = data.draw(st.sampled_from(self.optimizers))
        for number, (part, eager) in enumerate(zip(self.ours, self.eager)):
            held = {id(p) for p in parameters(optimizer)}
            if id(part.weight) in held and id(part.bias) not in held:
                optimizer.add_param_group({"params": [part.bias], "lr": 0.25})
                reference.add_param_group({"params": [eager.bias], "lr": 0.25})
                self.done()
                return

    @rule(data=st.data(), how=st.sampled_from(sorted(COPIES)))
    def keep_state(self, data, how):
        index = data.draw(st.integers(0, len(self.optimizers) - 1))
        states = [COPIES[how](optimizer.state_dict()) for optimizer in self.optimizers[index]]
        self.kept.append((index, states))

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def load_state(self, data):
        index, states = data.draw(st.sampled_from(self.kept))
        pair = self.optimizers[index]
        # Ours keeps the values that a state lacks; torch's starts again.
        misses = pair[1].state_dict()["state"].keys() - states[1]["state"].keys()
        for optimizer, state in zip(pair, states):
            if not misses or self.is_torch:
                _, error = attempt(optimizer.load_state_dict, copy.deepcopy(state))
                assert error is None or "parameter group" in str(error)
        self.done()

    @rule(data=st.data(), how=st.sampled_from(["clear", "replace", "drop", "write", "assign"]))
    def write_state(self, data, how):
        pair = data.draw(st.sampled_from(self.optimizers))
        at = data.draw(st.integers(0, len(parameters(pair[1])) - 1))
        for optimizer in pair:
            parameter, states = parameters(optimizer)[at], optimizer.state
            if how == "clear":
                states.clear()
            elif how == "replace":
                optimizer.state = collections.defaultdict(dict)
            elif parameter in states and how == "drop":
                del states[parameter]
            elif parameter in states and how == "write":
                for value in states[parameter].values():
                    value.mul_(2)
            elif parameter in states:
                states[parameter] = {key: value * 2 for key, value in states[parameter].items()}
        self.done()

    @rule(how=st.sampled_from(sorted(COPIES)))
    def copy_all(self, how):
        """Modules and optimizers; the copies go on."""
        old = self.models
        self.ours, ours = COPIES[how]((self.ours, [pair[0] for pair in self.optimizers]))
        self.optimizers = [(optimizer, pair[1]) for optimizer, pair in zip(ours, self.optimizers)]
        for model in old:
            model.destroy()
        for number in range(PARTS):
            self.wrap(number)
        self.done()


TestHistories = Histories.TestCase
TestHistories.settings = budget(HISTORIES, stateful_step_count=STEPS)
