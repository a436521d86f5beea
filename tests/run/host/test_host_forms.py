"""Replicas and micro-batches side by side: the same bits, messages and states as in turn."""

import copy
import itertools
import random
import signal
import threading

import pytest
import torch
from torch import nn

import poptorch
from poptorch import Error
from tests.helpers import Cases, quiet_options, run_python
from tests.run.drive import Driver
from tests.run.random_program import Program
from tests.threads import module_threads  # noqa: F401  (sets THREADS)

FORMS = ("replicas", "micro")
THREADS = 3  # as many as workers


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


# A probability beyond 1 is an error of the micro-batch that has it.
FAULTY = """
graph main {
  loop {body=@iteration, count=1}
  output
}

graph iteration {
  %zero = full {dtype=dtype:f32, fill_value=0.0, size=[2000]} : f32[2000]
  %sum = loop %zero {body=@micro, count=12} : f32[2000]
  %all = all_reduce %sum {op="sum"} : f32[2000]
  stream_out %all {stream="sum"}
  output
}

graph micro {
  %sum = input {index=0} : f32[2000]
  %rng = state {path="rng", role="rng"} : i32[4]
  %p = stream_in {stream="p"} : f32[2000]
  %a = bernoulli %p, %rng {salt=0} : f32[2000]  // net.py:1 first
  %q = stream_in {stream="q"} : f32[2000]
  %b = bernoulli %q, %rng {salt=1} : f32[2000]  // net.py:2 second
  %ab = add %a, %b : f32[2000]
  %next = accumulate %sum, %ab {scale=1.0} : f32[2000]
  %after = rng_advance %rng : i32[4]
  assign %after {path="rng"}
  output %next
}
"""


def faulty(form, replicas):
    driver = Driver(FAULTY, threads=THREADS, replicas=replicas, host=form)
    for replica in range(replicas):
        driver.write("rng", [1, 2, replica, 3], replica)
    return driver


@pytest.mark.parametrize("form", FORMS)
def test_the_first_error_counts(form, seed):
    """First in the order of a run in turn, whichever worker finds one first."""
    rng, replicas = random.Random(seed), 3
    drivers = [faulty(name, replicas) for name in ("inline", form)]
    assert drivers[1].executable.host_form()["form"] == form
    slices = range(12 * replicas)
    for _ in range(20):
        inputs = {name: torch.rand(12 * replicas, 2000) for name in "pq"}
        expected, found = (driver(**inputs) for driver in drivers)
        assert torch.equal(expected["sum"], found["sum"])
        assert torch.equal(drivers[0].read("rng", 2), drivers[1].read("rng", 2))
        for name, where in zip("pqpq", rng.sample(slices, 4)):
            inputs[name][where, rng.randrange(2000)] = 2 + where
        messages = []
        for driver in drivers:
            with pytest.raises(Error, match="a probability is") as raised:
                driver(**inputs)
            messages.append(str(raised.value))
            for replica in range(replicas):
                driver.write("rng", [1, 2, replica, 3], replica)
        assert messages[0] == messages[1] and "net.py:" in messages[0]


def test_sums_of_replicas_are_a_tree():
    text = """
graph main {
  %x = stream_in {stream="x"} : f32[40000]
  %y = all_reduce %x {op="sum"} : f32[40000]
  stream_out %y {stream="y"}
  output
}
"""
    for replicas, form in itertools.product((2, 5, 7, 8), ("inline", "replicas")):
        x = torch.randn(replicas, 40000)
        level = list(x)
        while len(level) > 1:
            pairs = [a + b for a, b in zip(level[::2], level[1::2])]
            level = pairs + level[2 * len(pairs):]
        y = Driver(text, threads=2, replicas=replicas, host=form)(x=x)["y"]
        assert torch.equal(y, level[0].expand_as(y)), (replicas, form)


def test_calls_of_libraries_sum_alike():
    """torch cuts this sum by the number of threads; a worker's call has as many as in turn."""
    text = """
graph main {
  loop {body=@iteration, count=6}
  output
}

graph iteration {
  %x = stream_in {stream="x"} : f32[300001]
  %y = aten %x {args=["%0", 3.0], overload="aten::norm.Scalar"} : f32[]
  stream_out %y {stream="y"}
  output
}
"""
    for form, replicas in (("micro", 1), ("replicas", 2)):
        x = torch.randn(6 * replicas, 300001)
        drivers = [Driver(text, threads=THREADS, replicas=replicas, host=name)
                   for name in ("inline", form)]
        expected, found = (driver(x=x)["y"] for driver in drivers)
        assert drivers[1].executable.host_form()["form"] == form
        assert torch.equal(expected, found)


def test_names_of_forms(monkeypatch):
    monkeypatch.setenv("POPTORCH_HOST", "replica")
    model = poptorch.inferenceModel(nn.Linear(2, 2), quiet_options())
    with pytest.raises(Error, match=r'\[POPTORCH_HOST\] there is no form "replica". Use one of: '
                                    r"inline, replicas, micro, stages, literal\."):
        model(torch.ones(1, 2))


SQUARE = """
graph main {{
  loop {{body=@iteration, count={count}}}
  output
}}

graph iteration {{
  %x = stream_in {{stream="x"}} : f32[{size},{size}]
  %y = matmul %x, %x : f32[{size},{size}]
  {more}
  stream_out %y {{stream="y"}}
  output
}}
"""


@pytest.mark.parametrize("form, options, count, more, reason", [
    ("micro", {"threads": 1}, 4, "", "there is one thread"),
    ("micro", {}, 1, "", "there is one micro-batch"),
    ("replicas", {}, 4, "", "there is one replica"),
    ("replicas", {"replicas": 2, "record_floats": True}, 4, "",
     "the program looks at floating-point values in order"),
    ("micro", {"replicas": 2}, 4, '%z = all_reduce %y {op="sum"} : f32[4,4]\n'
     '  stream_out %z {stream="z"}', "no loop of the program has rounds without an all_reduce"),
    ("micro", {}, 4, '%z = print_tensor %y {title="y"} : f32[4,4]\n  stream_out %z {stream="z"}',
     "the program calls code of the user, which runs in order"),
    ("stages", {"threads": 1}, 4, "", "there is one thread"),
    ("literal", {"threads": 1}, 4, "", "the program has one stage"),
    ("literal", {}, 1, "", "there is one micro-batch"),
    ("stages", {"record_floats": True}, 4, "",
     "the program looks at floating-point values in order"),
    ("stages", {}, 4, '%z = print_tensor %y {title="y"} : f32[4,4]\n  stream_out %z {stream="z"}',
     "the program calls code of the user, which runs in order"),
])
def test_where_a_form_does_not_apply(form, options, count, more, reason):
    driver = Driver(SQUARE.format(count=count, size=4, more=more),
                    **{"threads": 2, "host": form, **options})
    assert driver.executable.host_form() == {"form": "inline", "workers": 1, "reason": reason}


def test_what_is_chosen():
    """Small operations that threads cannot share, enough of them: side by side."""
    many = "\n  ".join(
        f"%t{i} = cumsum {'%y' if i == 0 else f'%t{i - 1}'} {{dim=0}} : f32[40,40]"
        for i in range(400)) + '\n  stream_out %t399 {stream="t"}'
    cases = [(SQUARE.format(count=8, size=4, more=""), "inline"),
             (SQUARE.format(count=8, size=600, more=""), "inline"),
             (SQUARE.format(count=8, size=40, more=many), "micro")]
    for text, form in cases:
        chosen = Driver(text, threads=2).executable
        assert chosen.host_form()["form"] == form, chosen.host_form()
        assert ("workers" in chosen.memory_report()) == (form == "micro")
        assert Driver(text, threads=1).executable.host_form()["form"] == "inline"


LONG = SQUARE.format(count=2000, size=64, more="""%s = state {path="s"} : f32[64,64]
  %t = add %s, %y : f32[64,64]
  assign %t {path="s"}""")


@pytest.mark.parametrize("form, replicas", [("micro", 1), ("replicas", 2)])
def test_handlers_of_signals(form, replicas):
    """One that returns sees whole states; one that raises ends all workers."""
    driver = Driver(LONG, threads=THREADS, replicas=replicas, host=form)
    assert driver.executable.host_form()["form"] == form
    x = torch.ones(2000 * replicas, 64, 64)
    seen = []

    def handler(*_):
        seen.append(driver.read("s"))
        if len(seen) == 3:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.03, 0.03)
        with pytest.raises(KeyboardInterrupt):
            while True:
                driver(x=x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all((state == state[0, 0]).all() for state in seen), "a state was read while written"
    driver.write("s", 0.0)
    driver(x=x)
    assert (driver.read("s") == 2000 * 64.0).all()


def test_threads_release_and_restore():
    """Executors in two threads; the memory of lanes goes with that of the program."""
    driver = faulty("micro", 2)
    inputs = {name: torch.rand(24, 2000) for name in "pq"}
    expected = faulty("inline", 2)(**inputs)["sum"]
    found = []

    def call():
        own = faulty("micro", 2)
        for _ in range(5):
            found.append(own(**inputs)["sum"])
            own.executable.release(set())
            own.executable.restore()
            own.write("rng", [1, 2, 0, 3], 0)
            own.write("rng", [1, 2, 1, 3], 1)

    others = [threading.Thread(target=call) for _ in range(2)]
    for thread in others:
        thread.start()
    found.append(driver(**inputs)["sum"])
    for thread in others:
        thread.join()
    assert len(found) == 11 and all(torch.equal(one, expected) for one in found)


@pytest.mark.sampled
def test_a_fork_ends_without_the_workers():
    print(run_python("""
import gc, os, torch
from tests.run.host.test_host_forms import faulty
driver = faulty("micro", 1)
driver(p=torch.rand(12, 2000), q=torch.rand(12, 2000))
child = os.fork()
if child == 0:
    del driver
    gc.collect()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
driver(p=torch.rand(12, 2000), q=torch.rand(12, 2000))
""", timeout_s=120))
