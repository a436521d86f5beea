"""Ctrl-C during compilations and calls, and what waits for an engine that runs."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

import poptorch
from poptorch._base import interrupts
from poptorch._device.device import Device
from poptorch._runtime.lifecycle import Lifecycle
from tests.helpers import Cases, quiet_options


@pytest.fixture(autouse=True)
def interruptible():
    """The handler that Python sets, also where these tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def check_many(kind: str, count: int, seed: int) -> None:
    command = [sys.executable, "-m", "tests.run.host.interrupted", kind, str(count), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 10 * count)
    assert done.returncode == 0, done.stderr
    came, _, of = done.stdout.split()[-3:]
    assert int(of) == count and int(came) > 0, done.stdout


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["compile", "run"])
def test_interrupts(kind, seed):
    check_many(kind, 5, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["compile", "run"])
def test_a_thousand_interrupts(kind, seed):
    check_many(kind, 1000, seed)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_waits_for_the_next_safe_point():
    done = []
    with pytest.raises(KeyboardInterrupt):
        with interrupts.deferred():
            interrupt()
            done.append("deferred")
            interrupts.check()
            done.append("never")
    with pytest.raises(KeyboardInterrupt):
        with interrupts.deferred():
            with interrupts.deferred():
                interrupt()
            done.append("outer")
        done.append("never")
    assert done == ["deferred", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda number, frame: None])
def test_the_programs_own_handler_is_kept(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        with interrupts.deferred():
            interrupt()
        assert signal.getsignal(signal.SIGINT) is handler
        with interrupts.deferred():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_handlers_of_all_signals_wait_in_their_order():
    came = []
    numbers = signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1
    before = {number: signal.signal(number, lambda number, frame: came.append(number))
              for number in numbers}
    try:
        with interrupts.deferred():
            for number in numbers:
                signal.raise_signal(number)
            assert came == []
            interrupts.check()
            assert came == list(numbers)
            signal.raise_signal(signal.SIGTERM)
        assert came == [*numbers, signal.SIGTERM]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_handlers_after_one_that_raises_run_too():
    came = []
    numbers = signal.SIGUSR2, signal.SIGINT, signal.SIGUSR1

    def handle(number, frame):
        came.append(number)
        raise OSError(number)

    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        with pytest.raises(OSError):
            with interrupts.deferred():
                for number in numbers:
                    signal.raise_signal(number)
        assert sorted(came) == sorted(numbers)
        assert all(signal.getsignal(number) is handle for number in numbers)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_other_threads_install_nothing():
    seen = []

    def look():
        with interrupts.deferred():
            interrupts.check()
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_forward_is_interrupted_between_operations():
    class Net(torch.nn.Module):
        def forward(self, x):
            interrupt()
            reached.append("after")
            return x + 1

    reached, net = [], Net()
    model = poptorch.inferenceModel(net, quiet_options())
    with pytest.raises(KeyboardInterrupt):
        model(torch.ones(2))
    assert reached == ["after"] and not model.isCompiled()
    net.forward = lambda x: x + 1
    assert model(torch.ones(2)).tolist() == [2, 2]


class Long(torch.nn.Module):
    """Some 100 ms of products in ten iterations."""

    def forward(self, x):
        for _ in range(8):
            x = (x @ x).tanh()
        return x


@pytest.fixture
def wakeups():
    """A descriptor that the program has given to signal.set_wakeup_fd, and its other end."""
    receive, send = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(send)
    yield receive, send
    signal.set_wakeup_fd(-1)
    os.close(receive)
    os.close(send)


def run_until_alarm():
    """A run that the handler of a signal ends."""
    model = poptorch.inferenceModel(Long(), quiet_options(deviceIterations=40))
    x = torch.rand(40 * 320, 320)
    model(x)

    def handle(number, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, handle)
    try:
        begin = time.monotonic()
        model(x)
        seconds = time.monotonic() - begin
        with pytest.raises(TimeoutError):
            signal.setitimer(signal.ITIMER_REAL, seconds / 4)
            while True:  # with other work one run may take as long as four
                model(x)
        assert len(model(x)) == len(x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Trained(torch.nn.Module):
    """Adds 1 to its weight in each of many iterations, of some milliseconds each."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x):
        for _ in range(4):
            x = (x @ x).tanh()
        return poptorch.identity_loss(0 * x.sum() - self.weight, "sum")


ITERATIONS = 60


@contextlib.contextmanager
def during_a_run(act):
    """A model in training; in its next call the handler of a signal runs ``act(model)``."""
    net = Trained()
    model = poptorch.trainingModel(net, quiet_options(deviceIterations=ITERATIONS),
                                   torch.optim.SGD(net.parameters(), 1.0))
    x, seen = torch.rand(ITERATIONS * 320, 320), []
    model.compile(x)
    begin = time.monotonic()
    model(x)
    seconds = time.monotonic() - begin

    def handle(number, frame):
        seen.append(act(model))

    def send():
        while model._executable.runs_begun == 1:
            time.sleep(0.001)
        time.sleep(seconds / 8)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    thread = threading.Thread(target=send)
    try:
        thread.start()
        yield model, x, seen
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_reads_the_weights_of_the_last_update():
    with during_a_run(lambda model: model.model.weight.item()) as (model, x, seen):
        model(x)
        assert model.model.weight.item() == 2 * ITERATIONS
    assert len(seen) == 1 and ITERATIONS < seen[0] < 2 * ITERATIONS


@pytest.mark.parametrize("name, act", [
    (r"\[destroy\] a call of", lambda model, x: model.destroy()),
    ("calling", lambda model, x: model(x)),
    ("writing weights of", lambda model, x: model.copyWeightsToDevice()),
    ("profiling", lambda model, x: model._executable.set_profiling(True)),
    ("delaying workers of", lambda model, x: model._executable.set_delay(1, 1)),
])
def test_a_handler_changes_nothing_that_runs(name, act):
    data = []

    def refused(model):
        words = f"{name} the model( while a call of it runs| is running) in the same thread"
        with pytest.raises(poptorch.Error, match=words):
            act(model, *data)
        return True

    with during_a_run(refused) as (model, x, seen):
        data.append(x)
        model(x)
        assert seen == [True]
        assert model.model.weight.item() == 2 * ITERATIONS
        model(x)
        assert model.model.weight.item() == 3 * ITERATIONS


@pytest.mark.parametrize("is_handler", [True, False])
def test_who_trains_the_same_weights_at_once_is_told(is_handler):
    class Around(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x)

    def train(model):
        around = Around(model.model)
        other = poptorch.trainingModel(around, quiet_options(),
                                       torch.optim.SGD(around.parameters(), 1000.0))
        other(torch.rand(8, 8))

    def in_a_thread(model):
        thread = threading.Thread(target=train, args=(model,))
        thread.start()
        threads.append(thread)

    threads = []
    with during_a_run(train if is_handler else in_a_thread) as (model, x, seen):
        try:
            model(x)
        except poptorch.Error as error:
            assert "weight: another executor ran with it" in str(error)
            expected = {1000 + updates for updates in range(ITERATIONS, 2 * ITERATIONS)}
        else:
            assert not is_handler
            expected = {1000 + 2 * ITERATIONS}
        for thread in threads:
            thread.join()
        assert seen == [None] and model.model.weight.item() in expected


def test_nothing_is_lost_where_another_thread_destroys():
    net = Trained()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 1.0))
    x, ends, done, calls = torch.rand(8, 8), threading.Event(), [], []

    def destroy():
        while not ends.wait(0.01):
            model.destroy()
            done.append(1)

    thread = threading.Thread(target=destroy)
    try:
        thread.start()
        while len(done) < 20:
            model(x)
            calls.append(1)
    finally:
        ends.set()
        thread.join()
    assert net.weight.item() == len(calls)


def test_many_threads_that_end_programs_leave_calls_free():
    calls = Lifecycle(Device(quiet_options()))

    def end():
        for _ in range(500):
            with calls.without_calls("destroy"):
                pass

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=end) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    calls.end_call(calls.begin_call())


def test_handlers_of_all_signals_run_during_a_run():
    run_until_alarm()
    assert signal.set_wakeup_fd(-1) == -1


def test_a_wakeup_descriptor_of_the_program_stays(wakeups):
    receive, send = wakeups
    run_until_alarm()
    assert os.read(receive, 64) == bytes([signal.SIGALRM])
    assert signal.set_wakeup_fd(send) == send


QUESTIONS = {
    "set_profiling": lambda it: it.set_profiling(True),
    "set_output_mode": lambda it: it.set_output_mode(it.streams()[-1].name, "all"),
    "host_slices": lambda it: it.host_slices(it.streams()[-1].name),
    "stream_times": lambda it: it.stream_times(it.streams()[-1].name),
    "timestamps": lambda it: it.timestamps(), "profile": lambda it: it.profile(),
}


def test_who_waits_for_a_run_lets_other_threads_go_on():
    model = poptorch.inferenceModel(Long(), quiet_options(deviceIterations=10))
    x = torch.rand(10 * 320, 320)
    model(x)
    executable = model._executable
    with Cases() as cases:
        for name, question in QUESTIONS.items():
            with cases.case(name):
                begun = executable.runs_begun
                running = threading.Thread(target=model, args=(x,))
                waiting = threading.Thread(target=question, args=(executable,))
                begin = last = time.monotonic()
                running.start()
                while executable.runs_begun == begun:
                    time.sleep(0)
                waiting.start()
                longest = 0.0
                while running.is_alive():
                    time.sleep(0.001)
                    longest, last = max(longest, time.monotonic() - last), time.monotonic()
                waiting.join()
                assert longest < (last - begin) / 2
