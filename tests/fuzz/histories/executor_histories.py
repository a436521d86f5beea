"""What histories of executors with overlapping weights share: executors come, run, end and go."""

import gc
import weakref

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from torch import nn

import poptorch
from poptorch._base.torch_private.basic import plain_access
from poptorch._weights import watched
from tests.fuzz.histories.weight_rule import Rule

MOST = 4  # executors at a time
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


class WithLoss(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        y = self.net(x)
        return y, poptorch.identity_loss((y * y).mean(), "none")


class ExecutorHistories(RuleBasedStateMachine):
    """A history, compared after each step with ``weight_rule.py``.

    Subclasses wrap modules, and have a method ``check_device(model, p)`` that compares what a
    program with a device has.

    Class attributes:
        x: the argument of a call.

    Attributes:
        tensors: on the host, by storage.
        rule: what they and the programs have.
        executors: pairs of an executor and the rule's state for its program.
    """

    x: torch.Tensor

    def start(self, tensors: dict[str, torch.Tensor], host: dict[str, torch.Tensor]) -> None:
        """Begins with these tensors, and their values as the rule has them."""
        self.tensors, self.rule = tensors, Rule(host)
        self.kept = [dict(host)]  # values that are loaded again
        self.executors: list[tuple] = []
        # The wrapped modules that watch each storage; a class stays until one of them ends it.
        self.watchers = {s: set() for s in tensors}
        self.is_watched = dict.fromkeys(tensors, False)

    def teardown(self):
        for model, _ in getattr(self, "executors", ()):
            model.destroy()

    # -- helpers -------------------------------------------------------------------------------

    def add(self, model, p):
        self.watch(p)
        self.rule.programs.append(p)
        self.executors.append((model, p))

    def pick(self, number):
        return self.executors[number % len(self.executors)]

    def watch(self, p):
        for s in p.storages if p.trains else ():
            self.watchers[s].add(p)
            self.is_watched[s] = True

    def unwatch(self, p):
        for s in p.storages if p.trains else ():
            self.watchers[s].discard(p)
            self.is_watched[s] = bool(self.watchers[s])

    def by_data(self, s):
        """A tensor's ``.data``, a write to which is only noticed where the tensor is watched."""
        tensor = self.tensors[s]
        return tensor.data if isinstance(tensor, watched._Watched) else tensor

    def seen_by_host(self, storages):
        self.rule.read([s for s in storages if self.is_watched[s]])

    def check(self, found, s, what):
        with plain_access():
            torch.testing.assert_close(found.detach().double(), self.rule.host[s], **TOLERANCE,
                                       msg=lambda words: f"{what} {s}: {words}")

    # -- executors -----------------------------------------------------------------------------

    @precondition(lambda self: self.executors)
    @rule(numbers=st.lists(st.integers(0, MOST - 1), min_size=1, max_size=2),
          times=st.integers(1, 2), scale=st.sampled_from([1, -2]))
    def call(self, numbers, times, scale):
        for number in numbers * times:
            model, p = self.pick(number)
            found = model(self.x * scale)
            self.watch(p)
            expected = self.rule.call(p, self.x * scale)
            torch.testing.assert_close((found[0] if p.trains else found).double(), expected,
                                       **TOLERANCE)

    @precondition(lambda self: self.executors)
    @rule(number=st.integers(0, MOST - 1))
    def compile(self, number):
        model, p = self.pick(number)
        model.compile(self.x)
        self.rule.compile(p)
        self.watch(p)

    @precondition(lambda self: self.executors)
    @rule(number=st.integers(0, MOST - 1))
    def destroy(self, number):
        model, p = self.pick(number)
        model.destroy()
        self.rule.destroy(p)
        if p.trains:  # nothing may ask for what others have when the module is not watched
            self.rule.read(p.storages)
        self.unwatch(p)

    @precondition(lambda self: self.executors)
    @rule(number=st.integers(0, MOST - 1), attaches=st.booleans())
    def change_device(self, number, attaches):
        """Lets go of the device, or takes it; the next call takes it by itself."""
        model, p = self.pick(number)
        if p.is_attached:
            model.detachFromDevice()
            self.rule.detach(p)
        if p.is_compiled and attaches:
            model.attachToDevice()
            self.rule.attach(p)
            self.watch(p)

    @precondition(lambda self: self.executors)
    @rule(number=st.integers(0, MOST - 1))
    def forget(self, number):
        model, p = self.executors.pop(number % len(self.executors))
        gone = weakref.ref(model)
        del model
        if gone() is not None:
            gc.collect()
        assert gone() is None
        p.is_orphan = True
        for s in p.storages:
            self.watchers[s].discard(p)

    @precondition(lambda self: self.executors)
    @rule(number=st.integers(0, MOST - 1))
    def to_host(self, number):
        model, p = self.pick(number)
        if p.is_compiled:
            model.copyWeightsToHost()
            self.rule.fetch(p)

    # -- what holds after each step ------------------------------------------------------------

    @invariant()
    def host_and_devices_have_what_the_rule_says(self):
        if not hasattr(self, "rule"):
            return
        self.rule.drop_orphans()
        for s, tensor in self.tensors.items():
            self.check(tensor, s, "host")
        for model, p in self.executors:
            assert model.isCompiled() == p.is_compiled
            assert model.isAttachedToDevice() == p.is_attached
            if p.is_attached:
                self.check_device(model, p)
