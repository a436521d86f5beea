"""Executors of one module in any order: whose weights each of them computes with.

The weights are large enough to be read in the host's pages (csrc/run/memory/shared_pages.h).
"""

import copy
import gc
import os
import pickle
import signal
import weakref

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import nn

import poptorch
from tests.fuzz.histories.weight_rule import Holder, Rule
from tests.fuzz.judge import FACTOR, attempt, budget
from tests.helpers import quiet_options, relative_error

WIDTH = 512  # of a weight of 1 MiB
SMALL = 3
MOST = 3  # executors for inference
RATE = 0.125
CHILD_S = 60


class Net(nn.Module):
    """Two layers, a large weight and a small one, and the number of training calls."""

    def __init__(self):
        super().__init__()
        self.large = nn.Linear(WIDTH, WIDTH, bias=False)
        self.small = nn.Linear(WIDTH, SMALL)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.calls.add_(1.0)
        y = self.small(self.large(x))
        return y, poptorch.identity_loss((y * y).mean(), reduction="none")


def values_of(net):
    return {name: value.detach().double().clone() for name, value in net.state_dict().items()}


class Side(Holder):
    """One executor."""

    def __init__(self, model, plain, trains):
        weights = ["large.weight", "small.weight", "small.bias"]
        super().__init__([*weights, "calls"] if trains else weights)
        self.model, self.plain, self.trains = model, plain, trains

    def updated(self):
        return self.storages if self.trains else []

    def compute(self, x):
        self.plain.load_state_dict(self.device, strict=False)
        self.plain.train(self.trains)
        result, loss = self.plain(x.double())
        if self.trains:
            self.plain.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in self.plain.parameters():
                    parameter -= RATE * parameter.grad
            self.device = values_of(self.plain)
        return result


class Weights(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**20))
    def begin(self, seed):
        torch.manual_seed(seed)
        self.net = Net()
        self.inputs = [torch.randn(2, WIDTH) / 16 for _ in range(3)]
        self.plain = Net().double()
        self.truth = Rule(values_of(self.net))
        self.kept = [values_of(self.net)]
        self.wrap()
        self.others = []
        self.one_more()

    def teardown(self):
        for side in self.sides() if hasattr(self, "others") else ():
            side.model.destroy()

    def add(self, model, trains):
        side = Side(model, self.plain, trains)
        self.truth.programs.append(side)
        return side

    def wrap(self):
        optimizer = torch.optim.SGD(self.net.parameters(), lr=RATE)
        model = poptorch.trainingModel(self.net.train(), quiet_options(), optimizer)
        self.trained = self.add(model, True)

    def sides(self):
        return [self.trained, *self.others]

    def side(self, data):
        return data.draw(st.sampled_from(self.sides()))

    def bring(self):
        self.truth.read(self.truth.host)

    def check(self, ours, expected, what):
        error = relative_error(torch.Tensor.detach(ours), expected)
        assert error < 1e-4, f"{what}: error {error}"

    # -- what runs -----------------------------------------------------------------------------

    def call(self, side, number):
        x = self.inputs[number]
        result, error = attempt(side.model, x)
        assert error is None, str(error)
        self.check(result[0], self.truth.call(side, x), "result")

    @rule(data=st.data(), number=st.integers(0, 2))
    def infer(self, data, number):
        self.call(data.draw(st.sampled_from(self.others)), number)

    @rule(number=st.integers(0, 2))
    def train(self, number):
        self.call(self.trained, number)

    @rule(data=st.data())
    def compile(self, data):
        side = self.side(data)
        side.model.compile(self.inputs[0])
        self.truth.compile(side)

    # -- weights -------------------------------------------------------------------------------

    @rule(through=st.booleans())
    def read(self, through):
        found = self.trained.model.state_dict() if through else self.net.state_dict()
        self.bring()
        for name, value in found.items():
            self.check(value, self.truth.host[name], name)

    @rule(factor=st.sampled_from([0.5, -1.0]), name=st.sampled_from(["large", "small"]),
          rows=st.sampled_from([1, SMALL]))
    def write(self, factor, name, rows):
        with torch.no_grad():
            getattr(self.net, name).weight[:rows].mul_(factor)
        self.bring()
        value = self.truth.host[f"{name}.weight"].clone()
        value[:rows] *= factor
        self.truth.write(f"{name}.weight", value)

    @rule(data=st.data())
    def to_device(self, data):
        side = self.side(data)
        _, error = attempt(side.model.copyWeightsToDevice)
        assert (error is None) == side.is_compiled
        if error is None:
            self.truth.publish(side, side.storages)

    @rule(data=st.data())
    def to_host(self, data):
        side = self.side(data)
        _, error = attempt(side.model.copyWeightsToHost)
        assert (error is None) == side.is_compiled
        if error is None:
            self.truth.fetch(side)

    @rule()
    def keep(self):
        self.kept.append(values_of(self.net))
        self.bring()

    @rule(data=st.data())
    def load_state_dict(self, data):
        side, state = self.side(data), data.draw(st.sampled_from(self.kept))
        side.model.load_state_dict(state)
        self.truth.load(list(state), state)

    @rule(with_pickle=st.booleans())
    def copy_module(self, with_pickle):
        again = pickle.loads(pickle.dumps(self.net)) if with_pickle else copy.deepcopy(self.net)
        self.bring()
        for name, value in again.state_dict().items():
            self.check(value, self.truth.host[name], name)
        with torch.no_grad():
            again.large.weight.zero_()  # which is not seen elsewhere

    # -- life ----------------------------------------------------------------------------------

    @precondition(lambda self: len(self.others) < MOST)
    @rule()
    def one_more(self):
        model = poptorch.inferenceModel(self.net.eval(), quiet_options())
        self.bring()  # eval() walks over the module
        self.others.append(self.add(model, False))

    @rule(data=st.data())
    def destroy(self, data):
        side = self.side(data)
        side.model.destroy()
        self.truth.destroy(side)

    @precondition(lambda self: len(self.others) > 1)
    @rule()
    def drop(self):
        side = self.others.pop()
        side.is_orphan, gone = True, weakref.ref(side.model)
        del side
        self.truth.drop_orphans()
        if gone() is not None:  # an error that was caught refers to it
            gc.collect()
        assert gone() is None

    @rule()
    def wrap_again(self):
        self.trained.model.destroy()
        self.truth.destroy(self.trained)
        self.truth.programs.remove(self.trained)
        self.wrap()

    @rule(data=st.data())
    def fork(self, data):
        """A child keeps the host's weights, and is refused the devices."""
        is_ahead, side = any(self.truth.newest.values()), self.side(data)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # OpenMP's threads are not there after a fork
        child = os.fork()
        if child == 0:
            signal.alarm(CHILD_S)
            os._exit(self.child(side, is_ahead))
        torch.set_num_threads(threads)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def child(self, side, is_ahead):
        """0, or how many of the checks held."""
        found, error = attempt(self.net.state_dict)
        if (error is not None) != is_ahead or (error and "fork" not in str(error)):
            return 1
        if not is_ahead:
            for name, value in found.items():
                if not relative_error(value.detach(), self.truth.host[name]) < 1e-4:
                    return 2
            with torch.no_grad():
                self.net.large.weight.zero_()
        if side.is_compiled:
            _, error = attempt(side.model, self.inputs[0])
            if error is None or "fork" not in str(error):
                return 3
        return 0

    @invariant()
    def is_compiled_as_expected(self):
        for side in self.sides() if hasattr(self, "others") else ():
            assert side.model.isCompiled() == side.is_compiled


TestWeights = Weights.TestCase
TestWeights.settings = budget(8 if FACTOR == 1 else 25, stateful_step_count=40)
