"""Histories of executors with overlapping modules, the host and its copies, step by step.

After each step, host and devices are compared with ``weight_rule.py``, without a visible read.
"""

import copy
import pickle

import torch
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from torch import nn

import poptorch
from poptorch._base.torch_private.basic import plain_access
from poptorch._weights import watched
from tests.fuzz.histories.executor_histories import MOST, TOLERANCE, ExecutorHistories, WithLoss
from tests.fuzz.histories.weight_rule import Holder
from tests.fuzz.judge import budget
from tests.helpers import quiet_options

RATE = 0.125
STEPS = 25  # of a history
STORAGES = ("a.w", "a.n", "b.w", "b.n")
X = torch.tensor([[1.0, -0.5], [0.25, 0.75]])


class Part(nn.Module):
    """A weight, and the number of calls in training mode, which is part of the result."""

    def __init__(self, start):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([start, start / 2]))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.calls.add_(1.0)
        return (x * self.weight).sum(1) + self.calls / 16


class Both(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.a, self.b = a, b

    def forward(self, x):
        return self.a(x) + self.b(x)


# How a module is wrapped: which parts it has, whether it trains, whether it counts its calls.
KINDS = {"infer a": ("a", False, False), "infer b": ("b", False, False),
         "infer both": ("ab", False, False), "infer alias": ("a", False, False),
         "count a": ("a", False, True), "count both": ("ab", False, True),
         "train a": ("a", True, True), "train b": ("b", True, True),
         "train both": ("ab", True, True)}


class Program(Holder):
    """The rule's state of an executor."""

    def __init__(self, kind):
        self.parts, self.trains, self.counts = KINDS[kind]
        super().__init__([f"{part}.{what}" for part in self.parts for what in "wn"])

    def updated(self):
        return [s for s in self.storages if self.trains or (self.counts and s.endswith("n"))]

    def compute(self, x):
        if self.counts:
            for part in self.parts:
                self.device[f"{part}.n"] = self.device[f"{part}.n"] + 1
        y = sum((x.double() * self.device[f"{part}.w"]).sum(1) + self.device[f"{part}.n"] / 16
                for part in self.parts)
        if self.trains:
            step = RATE * 2 / len(y) * (y[:, None] * x.double()).sum(0)
            for part in self.parts:
                self.device[f"{part}.w"] = self.device[f"{part}.w"] - step
        return y


class Histories(ExecutorHistories):
    x = X

    @initialize(kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=3))
    def begin(self, kinds):
        self.a, self.b = Part(1.0), Part(-0.75)
        self.both = Both(self.a, self.b)
        self.alias = Part(0.0)
        # Counts its own writes: with each write to its memory by another tensor, 0 is added to it.
        self.alias.weight = nn.Parameter(self.a.weight.data)
        self.alias.calls = self.a.calls
        tensors = {"a.w": self.a.weight, "a.n": self.a.calls,
                   "b.w": self.b.weight, "b.n": self.b.calls}
        self.start(tensors, {s: t.detach().double().clone() for s, t in tensors.items()})
        for number, kind in enumerate(kinds):
            self.wrap(kind)
            self.call([number], 1, 1)

    # -- executors -----------------------------------------------------------------------------

    @precondition(lambda self: len(self.executors) < MOST)
    @rule(kind=st.sampled_from(sorted(KINDS)))
    def wrap(self, kind):
        p = Program(kind)
        module = {"a": self.a, "b": self.b, "both": self.both, "alias": self.alias}[
            kind.partition(" ")[2]]
        module.train(p.counts)
        if p.trains:
            module = WithLoss(module)
            optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
            model = poptorch.trainingModel(module, quiet_options(), optimizer)
        else:
            model = poptorch.inferenceModel(module, quiet_options())
        self.add(model, p)

    @precondition(lambda self: self.executors)
    @rule(number=st.integers(0, MOST - 1), s=st.sampled_from([None, *STORAGES]))
    def to_device(self, number, s):
        model, p = self.pick(number)
        if s is not None:
            self.write(s, 1.0, False)
        if p.is_compiled:
            model.copyWeightsToDevice()
            self.rule.publish(p, p.storages)

    @precondition(lambda self: self.executors)
    @rule(number=st.integers(0, MOST - 1))
    def read_by_executor(self, number):
        model, p = self.pick(number)
        state = model.state_dict()
        self.rule.read(p.storages)
        for path, value in state.items():
            part = "b" if "b." in path or p.parts == "b" else "a"
            self.check(value, f"{part}.{'w' if path.endswith('weight') else 'n'}", "state_dict")

    @precondition(lambda self: self.executors)
    @rule(number=st.integers(0, MOST - 1), kept=st.integers(0, 20))
    def load_by_executor(self, number, kept):
        model, p = self.pick(number)
        values = self.kept[kept % len(self.kept)]
        state = {path: values[self.storage_of(path, p)].float() for path in model.state_dict()}
        model.load_state_dict(state)
        self.rule.read(p.storages)
        self.rule.load(p.storages, values)

    def storage_of(self, path, p):
        part = "b" if "b." in path or p.parts == "b" else "a"
        return f"{part}.{'w' if path.endswith('weight') else 'n'}"

    # -- the host ------------------------------------------------------------------------------

    @rule(s=st.sampled_from(STORAGES), how=st.sampled_from(["clone", "item", "equal"]))
    def read(self, s, how):
        tensor = self.tensors[s]
        if how == "clone":
            found = tensor.clone()
        elif how == "item":
            found = torch.tensor(tensor.tolist())
        else:
            torch.equal(torch.zeros(()), tensor)
            found = tensor
        self.seen_by_host([s])
        self.check(found, s, how)

    @rule(part=st.sampled_from("ab"))
    def read_module(self, part):
        state = getattr(self, part).state_dict()
        self.seen_by_host([f"{part}.w", f"{part}.n"])
        self.check(state["weight"], f"{part}.w", "state_dict")
        self.check(state["calls"], f"{part}.n", "state_dict")
        self.kept.append(dict(self.rule.host))

    @rule(s=st.sampled_from(STORAGES), by=st.sampled_from([0.5, -1.25]), data=st.booleans())
    def write(self, s, by, data):
        with torch.no_grad():
            (self.by_data(s) if data and s.endswith("w") else self.tensors[s]).add_(by)
            self.alias.weight.add_(0)
        self.seen_by_host([s])
        self.rule.write(s, self.rule.host[s] + by)

    @rule(part=st.sampled_from("ab"), kept=st.integers(0, 20))
    def load_module(self, part, kept):
        values = self.kept[kept % len(self.kept)]
        storages = [f"{part}.w", f"{part}.n"]
        is_watched = all(isinstance(self.tensors[s], watched._Watched) for s in storages)
        getattr(self, part).load_state_dict({"weight": values[f"{part}.w"].float(),
                                             "calls": values[f"{part}.n"].float()})
        if is_watched:  # a module that is wrapped for training
            self.rule.load(storages, values)
            return
        with torch.no_grad():
            self.alias.weight.add_(0)
        self.seen_by_host(storages)
        for s in storages:
            self.rule.write(s, values[s])

    @rule(with_pickle=st.booleans(), which=st.sampled_from(["a", "both"]), mode=st.booleans())
    def copy_module(self, with_pickle, which, mode):
        self.both.train(mode)  # which changes nothing of what is wrapped
        module = getattr(self, which)
        again = pickle.loads(pickle.dumps(module)) if with_pickle else copy.deepcopy(module)
        # In the order of copying: a watched tensor brings unwatched ones that were copied before.
        for s, value in zip(STORAGES, again.state_dict().values()):
            self.seen_by_host([s])
            self.check(value, s, "copy")
        for tensor in (*again.parameters(), *again.buffers()):
            assert type(tensor) in (nn.Parameter, torch.Tensor)
            with torch.no_grad():
                tensor.zero_()  # which is not seen elsewhere

    # -- what holds after each step ------------------------------------------------------------

    def check_device(self, model, p):
        program = model._weights._programs[model._programs.current]
        for part in program.parts:
            with plain_access():
                found = program.read(part).double()
            torch.testing.assert_close(found, p.device[self.storage_of(part.path, p)], **TOLERANCE)


TestHistories = Histories.TestCase
TestHistories.settings = budget(40, stateful_step_count=STEPS)
