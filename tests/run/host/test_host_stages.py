"""Tasks of a pipeline on workers and on one thread: bits, messages and states as in turn."""

import copy
import itertools
import os
import random
import signal
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import poptorch
from poptorch import Error
from tests.fuzz.judge import budget
from tests.helpers import Cases, check_equal_bits, quiet_options
from tests.tasks.test_models import COLUMNS, Net, compiled, programs
from tests.threads import module_threads  # noqa: F401  (sets THREADS)

FORMS = ("literal", "stages")
THREADS = 4
STRESS_RUNS = int(os.environ.get("POPTORCH_STRESS", "0"))  # `make stress`; 0: for some seconds


class Chain(nn.Module):
    """A stage for each IPU, with states, dropout, a tied weight, loops and two losses."""

    def __init__(self, ipus, rng):
        super().__init__()
        self.ipus, self.width = ipus, 6
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(ipus))
        self.norms = nn.ModuleList(nn.BatchNorm1d(6) for _ in range(ipus))
        self.kinds = [rng.choice(["norm", "dropout", "tied", "loop", "skip", "seen", ""])
                      for _ in range(ipus)]
        self.register_buffer("seen", torch.zeros(6))

    def stage(self, k, x, first):
        kind, y = self.kinds[k], torch.tanh(self.layers[k](x))
        if kind == "norm":
            return self.norms[k](y)
        if kind == "dropout":
            return nn.functional.dropout(y, 0.3, self.training)
        if kind == "tied":
            return y @ self.layers[0].weight
        if kind == "loop":
            return poptorch.for_loop(2, lambda z: [torch.tanh(self.layers[k](z))], [y])[0]
        if kind == "seen" and self.kinds.index("seen") == k:
            self.seen.add_(y.mean(0))
        return y + first if kind == "skip" else y

    def forward(self, x, target=None):
        first, losses = x, []
        for k in range(self.ipus):
            poptorch.Block.start(f"b{k}", ipu_id=k)
            x = self.stage(k, x, first)
            if k in (self.ipus // 2, self.ipus - 1) and target is not None:
                losses.append((x - target).square().mean())
        return x if target is None else (x, poptorch.identity_loss(sum(losses), "none"))


def made(net, replicas, accumulation, schedule, *, is_training=True, seed=1):
    """An executor of a pipeline (sharded without a schedule), and arguments of a call."""
    kind = poptorch.ShardedExecution if schedule is None else poptorch.PipelinedExecution
    strategy = kind(*(f"b{k}" for k in range(net.ipus)))
    if schedule is not None:
        strategy.schedule(schedule)
    options = quiet_options(replicationFactor=replicas, broadcastBuffers=False, randomSeed=seed,
                            setExecutionStrategy=strategy, autoRoundNumIPUs=True)
    data = torch.randn(2, 2 * replicas * accumulation, net.width)
    if not is_training:
        options.deviceIterations(accumulation)
        return poptorch.inferenceModel(net.eval(), options), data[:1]
    options.Training.gradientAccumulation(accumulation)
    options.outputMode(poptorch.OutputMode.All)
    return poptorch.trainingModel(net, options, torch.optim.Adam(net.parameters(), 0.01)), data


def runs_of(monkeypatch, net, form, *settings, calls=2, most_us=0, **more):
    """The form taken, and results and states of calls with the same data."""
    monkeypatch.setenv("POPTORCH_HOST", form)
    torch.manual_seed(0)
    net = copy.deepcopy(net)
    model, data = made(net, *settings, **more)
    model.compile(*data)
    executable = model._executable
    executable.set_delay(most_us, 1)
    results = [model(*data) for _ in range(calls)]
    taken = executable.host_form()["form"]
    model.copyWeightsToHost()
    states = dict(net.state_dict())
    model.destroy()
    return taken, (results, states)


@budget(12)
@given(programs(), st.booleans(), st.sampled_from(FORMS), st.booleans(),
       st.sampled_from(poptorch.Recomputation))
def test_models(program, training, form, poison, recomputation):
    layers, blocks, strategy, accumulation, kind, is_off_chip = program
    accumulation = 7 if kind == "pipelined" else accumulation
    x = torch.randn(2 * (accumulation if training else 4), COLUMNS,
                    generator=torch.Generator().manual_seed(accumulation))
    runs = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("inline", form):
            monkeypatch.setenv("POPTORCH_HOST", name)
            monkeypatch.setenv("POPTORCH_POISON", str(int(poison and name != "inline")))
            net = Net(layers, blocks)
            model = compiled(net, strategy, accumulation, training, is_off_chip, recomputation)
            results = [model(x) for _ in range(2)]
            model.copyWeightsToHost()
            runs.append((results, net.state_dict()))
    check_equal_bits(*runs)
    taken = model._executable.host_form()
    assert taken["form"] == form or taken["reason"] in (
        "the program has one stage", "there is one micro-batch"), taken


def test_sizes(monkeypatch, seed):
    rng = random.Random(seed)
    sizes = [(2, 4, 3), (4, 1, 64), (8, 3, 15), (16, 2, 31), (3, 1, 2)]
    with Cases() as cases:
        for ipus, replicas, accumulation in sizes:
            schedule = rng.choice(list(poptorch.PipelineSchedule)) \
                if accumulation >= 2 * ipus - 1 else None
            settings, is_training = (replicas, accumulation, schedule), rng.random() < 0.75
            net = Chain(ipus, rng)
            _, expected = runs_of(monkeypatch, net, "inline", *settings, is_training=is_training)
            for form in FORMS:
                with cases.case(form, ipus, *settings, net.kinds):
                    taken, found = runs_of(monkeypatch, net, form, *settings,
                                           is_training=is_training)
                    assert taken == form
                    check_equal_bits(found, expected)


def check_stress(monkeypatch, schedule, seed, runs):
    """Compares so many runs (0: those of some seconds) with runs in turn."""
    rng, end = random.Random(seed), time.monotonic() + 3
    net, executors = Chain(16, rng), []
    for form in ("inline", "stages"):
        monkeypatch.setenv("POPTORCH_HOST", form)
        torch.manual_seed(0)
        model, data = made(copy.deepcopy(net), 4, 64, schedule)
        model.compile(*data)
        executors.append(model)
    executable = executors[1]._executable
    assert executable.host_form()["workers"] == 16
    for number in itertools.count():
        if number == runs if runs else time.monotonic() > end:
            break
        executable.set_delay(rng.choice([0, 0, 1, 20, 100]), seed + number)
        expected, found = (model(*data) for model in executors)
        assert all(map(torch.equal, expected, found)), (number, net.kinds)
    for model in executors:
        model.copyWeightsToHost()
    check_equal_bits(*(model.model.state_dict() for model in executors))


def test_stress(monkeypatch, seed):
    """More workers than the machine has processors, which all wait at random."""
    torch.set_num_threads(16)
    schedules = list(poptorch.PipelineSchedule)
    for schedule in schedules if STRESS_RUNS else random.Random(seed).sample(schedules, 1):
        check_stress(monkeypatch, schedule, seed, STRESS_RUNS // len(schedules))


class Draws(nn.Module):
    """Random numbers on two IPUs; a probability beyond 1 is an error of its micro-batch."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, p, q):
        with poptorch.Block("b0", ipu_id=0):
            a = torch.bernoulli(p)
            self.steps.add_(1)
        with poptorch.Block("b1", ipu_id=1):
            y = torch.bernoulli(q) + a
            return y, poptorch.identity_loss(y.sum() * self.scale, "sum")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_training", [True, False], ids=["training", "inference"])
def test_the_first_error_counts(form, is_training, monkeypatch, seed):
    """First in the order of a run in turn, whichever worker finds one first."""
    rng, replicas, models = random.Random(seed), 3, []
    for name in ("inline", form):
        monkeypatch.setenv("POPTORCH_HOST", name)
        options = quiet_options(replicationFactor=replicas, broadcastBuffers=False, randomSeed=3,
                                autoRoundNumIPUs=True, outputMode=poptorch.OutputMode.All,
                                setExecutionStrategy=poptorch.PipelinedExecution("b0", "b1"))
        if is_training:
            options.Training.gradientAccumulation(12)
            models.append(poptorch.trainingModel(Draws(), options))
        else:
            models.append(poptorch.inferenceModel(Draws(), options.deviceIterations(12)))
        models[-1].compile(*torch.zeros(2, 12 * replicas, 50))
    assert models[1]._executable.host_form()["form"] == form
    data = torch.rand(2, 12 * replicas, 50)
    assert all(map(torch.equal, *(model(*data) for model in models)))
    for _ in range(10):
        data = torch.rand(2, 12 * replicas, 50)
        for which, where in zip((0, 1, 0, 1), rng.sample(range(12 * replicas), 4)):
            data[which, where, rng.randrange(50)] = 2 + where
        messages = []
        for model in models:
            with pytest.raises(Error, match="a probability is") as raised:
                model(*data)
            messages.append(str(raised.value))
        assert messages[0] == messages[1] and "test_host_stages.py:" in messages[0]


@pytest.mark.parametrize("form", FORMS)
def test_handlers_of_signals(form, monkeypatch):
    """One that returns sees whole states; one that raises ends all workers."""
    monkeypatch.setenv("POPTORCH_HOST", form)
    model, data = made(Chain(3, random.Random(1)), 1, 2000, poptorch.PipelineSchedule.Grouped)
    model.compile(*data)
    assert model._executable.host_form()["form"] == form
    model._executable.set_delay(20, 1)
    calls = []

    def handler(*_):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.03, 0.03)
        with pytest.raises(KeyboardInterrupt):
            while True:
                model(*data)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    model(*data)


class Decay(nn.Module):
    """The backward pass reads what forward assigned for the next micro-batch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x):
        with poptorch.Block("b0", ipu_id=0):
            y = self.layer(x) * self.scale.clone()
            self.scale.mul_(0.5)
        with poptorch.Block("b1", ipu_id=1):
            return y, poptorch.identity_loss(y.square(), "mean")


@pytest.mark.parametrize("form", FORMS)
def test_what_waits_for_a_later_task(form, monkeypatch):
    results = []
    for name in ("inline", form):
        monkeypatch.setenv("POPTORCH_HOST", name)
        options = quiet_options(Training__gradientAccumulation=5)
        options.setExecutionStrategy(poptorch.PipelinedExecution("b0", "b1"))
        torch.manual_seed(0)
        model = poptorch.trainingModel(Decay(), options)
        results.append(model(torch.ones(5, 4)))
    assert all(map(torch.equal, *results))
    assert model._executable.host_form() == {
        "form": "inline", "workers": 1,
        "reason": "task micro.s0 waits for task micro.s0.back of the micro-batch before"}


@pytest.mark.parametrize("compiled_for", ["inline", "stages"])
def test_programs_in_files(compiled_for, monkeypatch, tmp_path):
    """The planned text says what tasks the instructions belong to."""
    monkeypatch.setenv("POPTORCH_HOST", compiled_for)
    net = Chain(3, random.Random(1))
    model, data = made(net, 1, 6, poptorch.PipelineSchedule.Grouped, is_training=False)
    path = model.compileAndExport(tmp_path / "chain.poptorch", *data)
    expected = model(*data)
    monkeypatch.setenv("POPTORCH_HOST", "stages")
    again = poptorch.load(path)
    assert torch.equal(again(*data), expected)
    taken = again._executable.host_form()
    if compiled_for == "stages":
        assert taken["form"] == "stages"
    else:
        assert taken["reason"] == "the program was compiled for a different form"


def test_memory_of_lanes(monkeypatch):
    """As many micro-batches have memory of their own as the schedule has in flight."""
    net, sizes = Chain(4, random.Random(1)), set()
    for schedule, lanes in (("Grouped", 6), ("Interleaved", 3), ("Sequential", 1),
                            ("FillDrain", 9)):
        monkeypatch.setenv("POPTORCH_HOST", "literal")
        model, data = made(copy.deepcopy(net), 2, 9, getattr(poptorch.PipelineSchedule, schedule))
        model.compile(*data)
        found = model._executable.memory_report().get("workers", 0)
        assert (found > 0) == (lanes > 1)
        if lanes > 1:
            sizes.add(found / (lanes - 1))
    assert len(sizes) == 1
