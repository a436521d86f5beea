"""Replicas and micro-batches side by side: the same bits, messages and states as in turn."""

import copy
import itertools
import os
import random
import signal
import threading

import pytest
import torch
from torch import nn

import poptorch
from poptorch import Error, _C
from tests.helpers import Cases, quiet_options, run_python
from tests.run.drive import Driver
from tests.run.random_program import Program

FORMS = ("replicas", "micro")
THREADS = 3


@pytest.fixture(autouse=True)
def threads():
    """As many as workers; more than the machine may have processors."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


class Net(nn.Module):
    """Layers with every kind of state that a micro-batch changes, a tied weight and a loop."""

    def __init__(self, rng):
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4, momentum=rng.choice([0.1, None]))
        self.drop = nn.Dropout(rng.choice([0.0, 0.3]))
        self.wide = nn.Linear(4, 4, bias=rng.random() < 0.5)
        self.last = nn.Linear(4 * 36, 5)
        self.rounds = rng.randint(1, 3)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x, target=None):
        y = self.drop(self.norm(self.first(x)).relu()).permute(0, 2, 3, 1)
        self.seen.add_(y.mean((0, 1, 2)))
        y = self.wide(y).tanh() @ self.wide.weight
        y = poptorch.for_loop(self.rounds, lambda z: [self.drop(z) * 0.9 + 0.1], [y])[0]
        y = self.last(y.flatten(1))
        return y if target is None else (y, nn.functional.cross_entropy(y, target))


def run(monkeypatch, form, net, replicas, accumulation, iterations, *, is_training, seed):
    """The form taken, and all results and states of three calls."""
    monkeypatch.setenv("POPTORCH_HOST", form)
    net = copy.deepcopy(net)
    options = quiet_options(replicationFactor=replicas, deviceIterations=iterations,
                            broadcastBuffers=False, randomSeed=seed, autoRoundNumIPUs=True)
    torch.manual_seed(seed)
    count = 2 * replicas * accumulation * iterations
    data = torch.randn(count, 2, 6, 6), torch.randint(0, 5, (count,))
    if is_training:
        options.Training.gradientAccumulation(accumulation)
        options.outputMode(poptorch.OutputMode.All)
        model = poptorch.trainingModel(net.train(), options,
                                       torch.optim.Adam(net.parameters(), lr=0.01))
        results = [y.clone() for _ in range(3) for y in model(*data)]
    else:
        model = poptorch.inferenceModel(net.eval(), options)
        results = [model(data[0]).clone() for _ in range(3)]
    model.copyWeightsToHost()
    taken = model._executable.host_form()["form"]
    states = [value.clone() for value in net.state_dict().values()]
    model.destroy()
    return taken, results + states


def same(a, b):
    return all(map(torch.equal, a, b))


def test_models(monkeypatch, seed):
    rng = random.Random(seed)
    sizes = [(3, 4, 2), (1, 16, 1), (4, 1, 1), (2, 5, 1), (1, 3, 3)]
    with Cases() as cases:
        for replicas, accumulation, iterations in sizes:
            for is_training in (True, False):
                net, draws = Net(rng), rng.randint(1, 1000)
                steps = (replicas, accumulation if is_training else 1, iterations)
                if max(steps) == 1:
                    continue
                _, expected = run(monkeypatch, "inline", net, *steps, is_training=is_training,
                                  seed=draws)
                for form in FORMS:
                    with cases.case(steps, is_training, form):
                        taken, found = run(monkeypatch, form, net, *steps,
                                           is_training=is_training, seed=draws)
                        applies = replicas > 1 if form == "replicas" else \
                            steps[1] > 1 if is_training else iterations > 1
                        assert taken == (form if applies else "inline")
                        assert same(found, expected)


def results_of(text, inputs, states, **options):
    """Outputs of two calls and the states after them; and the form taken."""
    driver = Driver(text, **options)
    names = {stream.name for stream in driver.streams}  # a pass may have removed some
    given = {name: x for name, x in inputs.items() if name in names}
    for path in driver.states:
        driver.write(path, states[path])
    found = [out for _ in range(2) for out in driver(**given).values()]
    found += [driver.read(path, replica) for path in driver.states
              for replica in range(options["replicas"])]
    return found, driver.executable.host_form()["form"]


def check_random_program(number):
    rng = random.Random(number)
    program = Program(rng)
    text = program.text()
    if rng.random() < 0.5 and "@body1" in text:
        text = text.replace("@body1,", "@micro,").replace("graph body1 ", "graph micro ")
    inputs, states = program.data()
    replicas = rng.randint(1, 3)
    inputs = {name: torch.cat([x] * replicas) for name, x in inputs.items()}
    options = {"threads": rng.randint(2, 4), "replicas": replicas}
    expected, _ = results_of(text, inputs, states, host="inline", **options)
    for form in FORMS:
        found, taken = results_of(text, inputs, states, host=form,
                                poison=rng.random() < 0.5, **options)
        assert same(found, expected), f"{number} {taken} {options}\n{text}"


def test_random_programs(seed):
    rng = random.Random(seed)
    with Cases() as cases:
        for number in [rng.randrange(2**32) for _ in range(60)]:
            with cases.case(number):
                check_random_program(number)
