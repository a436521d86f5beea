"""Ctrl-C during compilations and calls, and what waits for an engine that runs."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

import poptorch
from poptorch import _interrupts as interrupts
from tests.helpers import Cases, quiet_options


@pytest.fixture(autouse=True)
def interruptible():
    """The handler that Python sets, also where these tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def check_many(kind: str, count: int, seed: int) -> None:
    command = [sys.executable, "-m", "tests.run.interrupted", kind, str(count), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 10 * count)
    assert done.returncode == 0, done.stderr
    came, _, of = done.stdout.split()[-3:]
    assert int(of) == count and int(came) > 0, done.stdout


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
            model(x)
        assert len(model(x)) == len(x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
    executable = model._compiled_model().executable
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
