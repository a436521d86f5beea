"""Calls of an executor in any order: what PyTorch would have computed, or a reason why not."""

import copy
import pickle
import re
import tempfile
from pathlib import Path

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import poptorch
from tests.fuzz.judge import attempt, budget
from tests.helpers import quiet_options, relative_error

COLUMNS = 3
SETTINGS = st.fixed_dictionaries(
    {"lr": st.sampled_from([0.0, 0.125, 0.5])},
    optional={"weight_decay": st.sampled_from([0.0, 0.25]),
              "momentum": st.sampled_from([0.0, 0.5]), "maximize": st.booleans(),
              "nesterov": st.booleans(), "dampening": st.sampled_from([0.0, 0.25])})
DEFAULT_ZERO = ("momentum", "weight_decay", "dampening")  # constants of a model if they are 0


class Net(torch.nn.Module):
    """A layer, a counter of its training calls, and a loss for it."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(COLUMNS, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, scale=1.0):
        if self.training:
            self.calls.add_(1.0)
        y = self.fc(x) * scale
        return y, poptorch.identity_loss((y * y).mean(), reduction="none")


def batches():
    return st.tuples(st.integers(0, 2**20), st.sampled_from([2, 2, 2, 4]))


def batch_of(drawn):
    number, rows = drawn
    return torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(number))


STRANGE = st.sampled_from([
    torch.ones(2, COLUMNS + 1), torch.ones(2, COLUMNS, dtype=torch.int64), torch.ones(()),
    torch.ones(2, COLUMNS, dtype=torch.complex64), torch.ones(0, COLUMNS), None, 3, "x", [1.0],
    torch.ones(2, COLUMNS).to_sparse(), torch.ones(2, COLUMNS, device="meta")])


class Reference:
    """The same net trained by PyTorch in float64."""

    def __init__(self, net, settings):
        self.net = copy.deepcopy(net).double()
        self.start_optimizer(settings)

    def start_optimizer(self, settings):
        """A new optimizer, without momentum so far."""
        self.optimizer = torch.optim.SGD(self.net.parameters(), **settings)

    def step(self, x, scale, accumulation, is_training):
        """One update; gives outputs and loss of the last micro-batch."""
        self.net.train(is_training)
        self.optimizer.zero_grad()
        for part in x.double().chunk(accumulation):
            y, loss = self.net(part, scale)
            (loss / accumulation).backward()
        self.optimizer.step()
        return y, loss


class Calls(RuleBasedStateMachine):
    """An executor for training, and its reference."""

    @initialize(accumulation=st.sampled_from([1, 1, 2]), settings=SETTINGS,
                seed=st.integers(0, 2**20))
    def begin(self, accumulation, settings, seed):
        torch.manual_seed(seed)
        self.folder = tempfile.TemporaryDirectory()
        self.accumulation = accumulation
        self.net = Net()
        self.saved = []
        self.kept = [copy.deepcopy(self.net.state_dict())]
        self.start_optimizer(settings)
        self.reference = Reference(self.net, self.settings)
        self.wrap()

    def teardown(self):
        if hasattr(self, "folder"):
            self.model.destroy()
            self.folder.cleanup()

    def start_optimizer(self, settings):
        if settings.get("nesterov"):  # torch refuses it without momentum, or with dampening
            settings = {**settings, "momentum": 0.5, "dampening": 0.0}
        self.settings = settings
        self.optimizer = torch.optim.SGD(self.net.parameters(), **settings)

    def wrap(self):
        self.options = quiet_options()
        self.options.Training.gradientAccumulation(self.accumulation)
        self.model = poptorch.trainingModel(self.net, self.options, self.optimizer)
        self.next_mode = self.net.training
        self.compiled = None

    def expect_compiled(self, x, scale):
        """Takes note of what the executor is now compiled for."""
        self.compiled = x.shape, scale
        self.mode = self.next_mode
        self.constants = [name for name in DEFAULT_ZERO
                          if self.optimizer.param_groups[0][name] == 0]

    def check(self, ours, expected, what):
        # Steps add up and amplify what one rounds; a step too few or too many is 1e-2 and more.
        error = relative_error(torch.Tensor.detach(ours), expected)
        assert error < 1e-4, f"{what}: error {error}"

    # -- what runs -----------------------------------------------------------------------------

    @rule(drawn=batches(), scale=st.sampled_from([1.0, 1.0, 1.0, 0.5]))
    def train_step(self, drawn, scale):
        x = batch_of(drawn)
        result, error = attempt(self.model, x, scale)
        if self.compiled not in (None, (x.shape, scale)):
            assert "[arguments]" in str(error) and "expected" in str(error)
            return
        assert error is None, str(error)
        if self.compiled is None:
            self.expect_compiled(x, scale)
        self.mode = self.next_mode  # a call runs the program of the mode that was set
        expected = self.reference.step(x, scale, self.accumulation, self.mode)
        for ours, theirs in zip(result, expected, strict=True):
            self.check(ours, theirs, "result")

    @rule(drawn=batches(), scale=st.sampled_from([1.0, 0.5]))
    def compile(self, drawn, scale):
        x = batch_of(drawn)
        assert attempt(self.model.compile, x, scale)[1] is None
        if self.compiled is None:
            self.expect_compiled(x, scale)
        assert self.model.isCompiled()

    # Before, it is `forward` that refuses, by whatever torch raises.
    @precondition(lambda self: self.compiled is not None)
    @rule(strange=STRANGE)
    def call_with_strange_arguments(self, strange):
        _, error = attempt(self.model, strange)
        assert error is not None

    @rule(drawn=batches())
    def infer(self, drawn):
        was_training = self.net.training
        options = quiet_options()
        inference = poptorch.inferenceModel(self.net.eval(), options)
        x = batch_of(drawn)
        result = inference(x)
        inference.destroy()
        self.net.train(was_training)
        self.reference.net.eval()
        for ours, theirs in zip(result, self.reference.net(x.double())):
            self.check(ours, theirs, "result of inference")

    # -- weights -------------------------------------------------------------------------------

    def check_weights(self, net):
        theirs = self.reference.net.state_dict()
        for name, ours in net.state_dict().items():
            self.check(ours, theirs[name], name)

    @rule()
    def read_weights(self):
        self.check_weights(self.net)
        self.check_weights(self.model)

    @rule(to_host=st.booleans())
    def copy_weights(self, to_host):
        self.check_weights(self.net)
        copy_them = self.model.copyWeightsToHost if to_host else self.model.copyWeightsToDevice
        _, error = attempt(copy_them)
        assert (error is None) == (self.compiled is not None)

    @rule(factor=st.sampled_from([0.5, -1.0]))
    def write_weights(self, factor):
        with torch.no_grad():
            self.net.fc.weight.mul_(factor)
            self.reference.net.fc.weight.mul_(factor)
        attempt(self.model.copyWeightsToDevice)

    @rule()
    def keep_state_dict(self):
        self.kept.append(copy.deepcopy(self.model.state_dict()))

    @rule(data=st.data())
    def load_state_dict(self, data):
        state = data.draw(st.sampled_from(self.kept))
        self.model.load_state_dict(state)
        self.reference.net.load_state_dict(state)

    @rule(with_pickle=st.booleans())
    def copy_module(self, with_pickle):
        again = pickle.loads(pickle.dumps(self.net)) if with_pickle else copy.deepcopy(self.net)
        self.check_weights(again)
        assert type(again) is Net

    @rule(with_pickle=st.booleans())
    def copy_executor(self, with_pickle):
        make = (lambda m: pickle.loads(pickle.dumps(m))) if with_pickle else copy.deepcopy
        again, error = attempt(make, self.model)
        if error is None:
            self.check_weights(again)
            again.destroy()

    # -- settings ------------------------------------------------------------------------------

    @rule(mode=st.booleans())
    def set_mode(self, mode):
        self.model.train(mode)
        self.next_mode = mode

    @rule(settings=SETTINGS)
    def set_optimizer(self, settings):
        def flags(optimizer):
            group = optimizer.param_groups[0]
            return group["nesterov"], group["maximize"], group["momentum"] != 0

        before, old = self.optimizer, self.settings
        self.start_optimizer(settings)
        _, error = attempt(self.model.setOptimizer, self.optimizer)
        group = self.optimizer.param_groups[0]
        is_possible = self.compiled is None or flags(before) == flags(self.optimizer) and all(
            group[name] == 0 for name in self.constants)
        assert (error is None) == is_possible
        if error is not None:
            assert re.search("is already compiled|is a constant of the compiled model", str(error))
            self.optimizer, self.settings = before, old
            return
        self.reference.optimizer.param_groups[0].update(
            {name: group[name] for name in ("lr", "momentum", "dampening", "weight_decay",
                                            "nesterov", "maximize")})

    @rule(strange=st.sampled_from([None, 3, "sgd", Net(), torch.optim.SGD]))
    def set_strange_optimizer(self, strange):
        assert attempt(self.model.setOptimizer, strange)[1] is not None

    # -- life ----------------------------------------------------------------------------------

    @rule()
    def destroy(self):
        self.model.destroy()
        self.compiled = None
        assert not self.model.isCompiled()  # the optimizer has the state of what it trained

    @rule(attaches=st.booleans())
    def change_device(self, attaches):
        was_attached = self.model.isAttachedToDevice()
        name = "attachToDevice" if attaches else "detachFromDevice"
        _, error = attempt(getattr(self.model, name))
        is_possible = self.compiled is not None and was_attached != attaches
        assert (error is None) == is_possible
        assert self.model.isAttachedToDevice() == (attaches if is_possible else was_attached)

    @rule()
    def wrap_again(self):
        try:
            poptorch.trainingModel(self.net, self.options)
        except RuntimeError as error:
            assert "already been wrapped" in str(error)
        else:
            self.model.destroy()
        self.destroy()
        self.wrap()

    @rule()
    def save(self):
        path = Path(self.folder.name) / f"{len(self.saved)}.poptorch"
        _, error = attempt(self.model.save, path)
        assert (error is None) == (self.compiled is not None and self.mode == self.next_mode)
        if error is None:
            self.saved.append((path, copy.deepcopy(self.reference), self.settings, self.compiled,
                               self.mode))

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def load(self, data):
        path, reference, settings, compiled, mode = data.draw(st.sampled_from(self.saved))
        self.model.destroy()
        self.model = poptorch.load(path)
        self.net, self.reference = self.model.model, copy.deepcopy(reference)
        self.settings, self.compiled, self.mode = settings, compiled, mode
        self.next_mode = self.net.training
        self.optimizer = self.model._optimizer.optimizer
        self.check_weights(self.net)

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def load_executable(self, data):
        path, *_ = data.draw(st.sampled_from(self.saved))
        _, error = attempt(self.model.loadExecutable, path)
        if self.compiled is not None:
            assert "destroy()" in str(error)
        elif error is None:
            self.destroy()

    @rule(name=st.sampled_from([
        "getTensorNames", "memory_report", "partition_summary", "getPerfCounters", "getLatency",
        "getComputeLatency", "isCompiled", "copyWeightsToHostIfNeeded", "isAttachedToDevice",
        "copyNamedBuffersToDevice", "getAnchoredTensor", "ir", "cycleCount"]),
        arguments=st.lists(st.sampled_from([None, "plan", 3, "x"]), max_size=1))
    def ask(self, name, arguments):
        attempt(lambda: getattr(self.model, name)(*arguments))

    @invariant()
    def is_as_expected(self):
        if hasattr(self, "model"):
            assert self.model.isCompiled() == (self.compiled is not None)


TestCalls = Calls.TestCase
TestCalls.settings = budget(60, stateful_step_count=20)
