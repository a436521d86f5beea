"""Several threads that compile and run at once: each gets what it would have got alone."""

import contextlib
import copy
import pickle
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import poptorch
from tests.fuzz.judge import budget
from tests.helpers import quiet_options, relative_error
from tests.threads import at_once, frequent_switches

pytestmark = pytest.mark.usefixtures(frequent_switches.__name__)


class Trained(nn.Module):
    """Layers, a loss, and a buffer that training changes."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.calls.add_(1.0)
        y = self.layers(x)
        return y, poptorch.identity_loss((y * y).mean(), reduction="none")


# Layers and the sizes of their input.
LAYERS = {
    "linear": (lambda: nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)), (4, 5)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), (2, 3, 6, 6)),
    "norm": (lambda: nn.Sequential(nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 6)), (3, 2, 6)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (2, 3, 8)),
}
# What a thread does with its executor.
ACTIONS = ["run", "run", "run", "compile", "destroy", "read weights", "write weights", "to host",
           "detach", "copy", "save and load"]
LIVES = st.tuples(st.sampled_from(sorted(LAYERS)), st.booleans(), st.integers(0, 2**20),
                  st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=8))
RATE = 0.125


class Life:
    """An executor, what it is to do, and what that gives in float64."""

    def __init__(self, kind, trains, seed, actions):
        make, self.sizes = LAYERS[kind]
        torch.manual_seed(seed)
        self.module = Trained(make()).train(trains)
        self.trains = trains
        self.actions = [*actions, "run", "read weights"]
        self.inputs = [torch.randn(self.sizes) for _ in self.actions]
        self.expected = self.in_eager()
        self.wrap()

    def in_eager(self):
        """Results, or weights, of each action."""
        module = copy.deepcopy(self.module).double()
        optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
        found = []
        for action, x in zip(self.actions, self.inputs, strict=True):
            if action == "write weights":
                halve(module)
            y, loss = module(x.double()) if action == "run" else (None, None)
            if action == "run" and self.trains:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            results = (y, loss) if action == "run" else module.state_dict().values()
            found.append([x.detach().clone() for x in results])
        return found

    def wrap(self):
        if self.trains:
            optimizer = torch.optim.SGD(self.module.parameters(), lr=RATE)
            self.model = poptorch.trainingModel(self.module, quiet_options(), optimizer)
        else:
            self.model = poptorch.inferenceModel(self.module, quiet_options())

    def live(self, barrier):
        """All actions; meanwhile other threads do theirs."""
        barrier.wait()
        for action, x, expected in zip(self.actions, self.inputs, self.expected, strict=True):
            results = getattr(self, action.replace(" ", "_"))(x)
            for ours, theirs in zip(results, expected, strict=True):
                error = relative_error(torch.Tensor.detach(ours), theirs)
                assert error < 1e-4, f"{action}: error {error}"

    def weights(self):
        return list(self.model.state_dict().values())

    def run(self, x):
        return self.model(x)

    def compile(self, x):
        self.model.compile(x)
        return self.weights()

    def destroy(self, x):
        self.model.destroy()
        return self.weights()

    def read_weights(self, x):
        return [value.clone() for value in self.module.state_dict().values()]

    def write_weights(self, x):
        halve(self.module)
        if self.model.isCompiled():
            self.model.copyWeightsToDevice()
        return self.weights()

    def to_host(self, x):
        if self.model.isCompiled():
            self.model.copyWeightsToHost()
        return self.weights()

    def detach(self, x):
        if self.model.isAttachedToDevice():
            self.model.detachFromDevice()
        return self.weights()

    def copy(self, x):
        again = pickle.loads(pickle.dumps(self.model))
        self.model.destroy()
        self.model, self.module = again, again.model
        return self.weights()

    def save_and_load(self, x):
        self.model.compile(x)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.poptorch"
            self.model.save(path)
            self.model.destroy()
            self.model = poptorch.load(path)
        self.module = self.model.model
        return self.weights()


def halve(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(0.5)


@budget(12)
@given(st.lists(LIVES, min_size=2, max_size=4))
def test_threads_with_executors_of_their_own(lives):
    lives = [Life(*life) for life in lives]
    at_once([life.live for life in lives])
    for life in lives:
        life.model.destroy()


@budget(8)
@given(st.sampled_from(sorted(LAYERS)), st.integers(2, 4), st.booleans(), st.integers(0, 2**20))
def test_threads_with_one_executor(kind, threads, is_compiled, seed):
    """The first call too, which one of them makes; operands that must be copied, results apart."""
    make, sizes = LAYERS[kind]
    torch.manual_seed(seed)
    module = make().eval()
    inputs = [torch.randn(sizes).mT.contiguous().mT for _ in range(threads)]
    with torch.no_grad():
        expected = [copy.deepcopy(module).double()(x.double()) for x in inputs]
    model = poptorch.inferenceModel(module, quiet_options())
    if is_compiled:
        model.compile(inputs[0])

    def call(number, barrier):
        barrier.wait()
        for turn in range(100):
            if turn % 25 == 24:
                with contextlib.suppress(poptorch.Error):  # another thread has done it already
                    model.detachFromDevice()
            assert relative_error(model(inputs[number]), expected[number]) < 1e-4

    at_once([lambda barrier, n=n: call(n, barrier) for n in range(threads)])
    model.destroy()


@budget(4)
@given(st.sampled_from(sorted(LAYERS)), st.integers(2, 4), st.integers(0, 2**20))
def test_threads_with_executors_of_one_module(kind, threads, seed):
    """While one captures the module, others check that it is the one that they compiled."""
    make, sizes = LAYERS[kind]
    torch.manual_seed(seed)
    module, x = make().eval(), torch.randn(sizes)
    with torch.no_grad():
        expected = copy.deepcopy(module).double()(x.double())

    def live(barrier):
        barrier.wait()
        for _ in range(4):
            model = poptorch.inferenceModel(module, quiet_options())
            for _ in range(20):
                assert relative_error(model(x), expected) < 1e-4
            model.destroy()

    at_once([live] * threads)
