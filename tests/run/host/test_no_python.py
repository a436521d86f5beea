"""A run needs no Python: it goes on while another thread holds the interpreter's lock."""

import ctypes
import sys
import threading
import time

import pytest
import torch

import poptorch

ITERATIONS = 1500


class Net(torch.nn.Module):
    """A training step long enough that the other thread wakes up meanwhile."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 512), torch.nn.ReLU(), torch.nn.Linear(512, 4)
        )

    def forward(self, x, target):
        out = self.layers(x)
        return out, torch.nn.functional.mse_loss(out, target)


class Calls:
    """An executable that notes the pointers of its last run."""

    def __init__(self, executable):
        self._executable = executable
        self.pointers = []

    def run(self, pointers, threads):
        self.pointers = pointers
        return self._executable.run(pointers, threads)


@pytest.fixture
def no_switching():
    """The interpreter's lock changes hands only where its holder gives it up."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    yield
    sys.setswitchinterval(before)


def held_during(run, hold_us):
    """When another thread took the interpreter's lock, and gave it up, while ``run`` was called."""
    # PyDLL calls keep the interpreter's lock, so no other Python code runs during this sleep.
    sleep_with_lock = ctypes.PyDLL(None).usleep
    gate, held = threading.Lock(), []

    def hold():
        with gate:
            held.append(time.clock_gettime_ns(time.CLOCK_MONOTONIC))
            sleep_with_lock(hold_us)
            held.append(time.clock_gettime_ns(time.CLOCK_MONOTONIC))

    gate.acquire()
    holder = threading.Thread(target=hold)
    holder.start()
    gate.release()
    run()
    holder.join()
    return held


@pytest.mark.sampled
def test_iterations_go_on_without_the_lock(no_switching):
    net = Net()
    options = poptorch.Options().showCompilationProgressBar(False).deviceIterations(ITERATIONS)
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=1e-3))
    inputs = torch.randn(256 * ITERATIONS, 8), torch.randn(256 * ITERATIONS, 4)
    model(*inputs)
    # A second call tells the memory that it gives the executable, and how long a run takes.
    model._programs.current.call._executable = calls = Calls(model._executable)
    begin = time.monotonic()
    kept = model(*inputs)
    hold_us = int(1e6 * (1 + 4 * (time.monotonic() - begin)))

    # The executable itself: on the way to it PyTorch would give the lock up, too early.
    executable = model._executable
    for _ in range(5):
        held = held_during(lambda: executable.run(calls.pointers, 1), hold_us)
        times = executable.timestamps()
        # Before a run begins, the call gives the lock up for a moment (to find out about the
        # descriptor of signals); on a busy machine that may be when the other thread takes it.
        if times[0][0] < held[0]:
            break
    assert all(tensor.isfinite().all() for tensor in kept)  # their memory was written again
    assert len(times) == ITERATIONS
    meanwhile = [begin for begin, end in times if held[0] < begin and end < held[1]]
    assert len(meanwhile) > ITERATIONS / 2  # the holder wakes up after the run has begun
    assert times[-1][1] < held[1]
