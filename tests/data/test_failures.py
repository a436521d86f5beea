"""Errors, deaths and interruptions: the user learns of them, and nothing is left behind."""

import gc
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader

import poptorch
from poptorch.data import _worker
from poptorch.data._worker import _undisturbed
from tests.data.datasets import (
    ASYNC,
    FORK,
    SOON_S,
    Faulty,
    break_down,
    die,
    hang,
    loading,
    numbers,
    options,
    processes_of,
    segments,
    values,
    wait_until,
)
from tests.helpers import ROOT


def make(data, **arguments):
    return loading(poptorch.DataLoader(options(), data, mode=ASYNC, async_options=FORK,
                                       **arguments))


def pid_of(loader):
    """The process of an asynchronous loader."""
    return loader._accessor._link._process.pid


def is_gone(pid):
    """Whether a loader's process and its workers have ended."""
    return not processes_of(group=pid)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_data_set(workers):
    with make(Faulty(5, break_down), num_workers=workers) as loader:
        for _ in range(2):  # the next epoch is tried again
            drawn = []
            with pytest.raises(LookupError, match="(?s)Original Traceback.*break_down.*Broken"):
                for x in loader:
                    drawn.append(x.item())
            assert drawn == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_first_item(workers, capfd):
    with pytest.raises(poptorch.Error, match="(?s)worker thread failed to start.*Broken dataset"):
        poptorch.DataLoader(options(), Faulty(0, break_down), mode=ASYNC, async_options=FORK,
                            num_workers=workers)
    assert "LookupError: " in capfd.readouterr().err


def test_an_error_whose_class_cannot_be_sent():
    class LocalError(Exception):
        pass

    def fail():
        raise LocalError("Broken dataset")

    with make(Faulty(5, fail)) as loader:
        with pytest.raises(RuntimeError, match="(?s)LocalError.*Broken dataset"):
            values(loader)


def test_an_item_that_cannot_be_sent():
    with loading(poptorch.AsynchronousDataAccessor([1, lambda: 1], **FORK)) as accessor:
        with pytest.raises(Exception, match="(?s)pickle.*lambda"):
            list(accessor)


def test_death_of_the_process():
    before = segments()
    with make(Faulty(5, die)) as loader:
        pid, start, drawn = pid_of(loader), time.monotonic(), []
        with pytest.raises(poptorch.Error, match=rf"pid {pid}\) was killed by SIGKILL"):
            for x in loader:
                drawn.append(x.item())
        assert drawn == [0, 1, 2, 3, 4] and time.monotonic() - start < SOON_S
        with pytest.raises(poptorch.Error, match="was ended by .* an error. Make a new loader"):
            iter(loader)
    assert segments() <= before


def test_death_of_a_worker():
    with make(Faulty(5, die), num_workers=2) as loader:
        start = time.monotonic()
        with pytest.raises(RuntimeError, match="DataLoader worker|worker process"):
            values(loader)
        assert time.monotonic() - start < SOON_S


def die_with_a_segment():
    """As torch does: the name is removed after the memory has been made, if all goes well."""
    with open(f"/dev/shm/torch_{os.getpid()}_1_1", "w"):
        die()


@pytest.mark.parametrize("workers", [0, 1])
def test_shared_memory_of_the_dead_is_removed(workers):
    before = segments()
    with make(Faulty(5, die_with_a_segment), num_workers=workers) as loader:
        with pytest.raises(RuntimeError):
            values(loader)
    assert segments() <= before


def test_death_while_workers_are_busy():
    """The workers of a process that is killed go with it."""
    with make(Faulty(7, hang), num_workers=2) as loader:
        iterator = iter(loader)
        drawn, pid = [next(iterator).item() for _ in range(3)], pid_of(loader)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(poptorch.Error, match="was killed by SIGKILL"):
            while True:
                drawn.append(next(iterator).item())
        assert drawn == list(range(len(drawn))) and is_gone(pid)


def test_a_process_that_exits():
    with make(Faulty(5, lambda: os._exit(3))) as loader:
        with pytest.raises(poptorch.Error, match="exited with code 3"):
            values(loader)


@pytest.fixture
def _short_grace(monkeypatch):
    """What hangs is killed soon; programs of test_no_process_outlives_its_program wait in full."""
    monkeypatch.setattr(_worker, "GRACE_S", 0.2)


@pytest.mark.usefixtures("_short_grace")
def test_timeout_of_a_slow_worker():
    with make(Faulty(5, hang), num_workers=1, timeout=0.3) as loader:
        with pytest.raises(RuntimeError, match="DataLoader timed out after 0.3 seconds"):
            values(loader)


@pytest.mark.usefixtures("_short_grace")
@pytest.mark.parametrize("workers", [0, 2])
def test_terminate_while_loading_hangs(workers):
    before = segments()
    with make(Faulty(5, hang), num_workers=workers) as loader:
        iterator = iter(loader)
        assert next(iterator).item() == 0
        start, pid = time.monotonic(), pid_of(loader)
        loader.terminate()
        assert time.monotonic() - start < SOON_S and is_gone(pid)
        with pytest.raises(poptorch.Error, match="was ended by terminate"):
            next(iterator)
        loader.terminate()
    assert segments() <= before


def test_processes_end_by_themselves():
    """Though the second process holds the socket of the first, which so does not see its end."""
    with make(numbers()) as first, make(numbers()) as second:
        assert values(first) == values(second)
        processes = [loader._accessor._link._process for loader in (first, second)]
        first.terminate()
        second.terminate()
    assert [process.exitcode for process in processes] == [0, 0]


def test_a_loader_that_is_dropped_ends_its_process():
    loader = poptorch.DataLoader(options(), numbers(), mode=ASYNC, async_options=FORK)
    pid = pid_of(loader)
    del loader
    gc.collect()
    assert is_gone(pid)


PROGRAM = """
import signal, sys, time, torch, poptorch
from tests.data.datasets import ASYNC, FORK, Faulty, Stream, hang, numbers, options
torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)
loaders = [
    poptorch.DataLoader(options(), numbers(), mode=ASYNC, num_workers=2, async_options=FORK),
    *(poptorch.DataLoader(options(), Faulty(5, hang), mode=ASYNC, async_options=FORK)
      for _ in range(6)),
    poptorch.DataLoader(options(), Stream(9), mode=ASYNC, async_options=FORK | {{
        "early_preload": True, "buffer_size": 2}}),
]
iterators = [iter(loader) for loader in loaders]
for iterator in iterators:
    next(iterator)
print("ready", flush=True)
sys.stdin.readline()
{ending}
"""


def run_until_ready(ending):
    """A program with eight loaders (six hang), at its end; in its own session.

    Ctrl-C ends it, whether or not the tests run where a shell has turned Ctrl-C off.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(ending=ending)], cwd=ROOT, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    assert len(processes_of(session=process.pid)) >= 11  # the program, its loaders, two workers
    process.stdin.write("\n")  # only now does it end
    process.stdin.flush()
    return process


@pytest.mark.sampled
@pytest.mark.parametrize("ending, signal_number", [
    ("for x in iterators[1]: pass", signal.SIGINT),
    ("time.sleep(3600)", signal.SIGKILL),
    ("", None),
], ids=["Ctrl-C", "SIGKILL", "end"])
def test_no_process_outlives_its_program(ending, signal_number):
    before = segments()
    process = run_until_ready(ending)
    start = time.monotonic()
    if signal_number is not None:
        os.kill(process.pid, signal_number)
    errors = process.communicate(timeout=60)[1]
    assert time.monotonic() - start < SOON_S
    if signal_number == signal.SIGINT:
        assert "KeyboardInterrupt" in errors
    assert wait_until(lambda: not processes_of(session=process.pid))
    assert segments() <= before


@pytest.mark.parametrize("workers", [0, 2])
def test_sync_mode_shows_tracebacks_as_well(workers):
    loader = poptorch.DataLoader(options(), Faulty(5, break_down), num_workers=workers)
    with pytest.raises(LookupError, match="Broken dataset"):
        values(loader)
    assert isinstance(loader, TorchDataLoader) and torch.is_tensor(next(iter(loader)))


def test_a_signal_does_not_cut_a_message_in_two():
    def raise_error(*_):
        raise RuntimeError("a worker died")

    done, before = [], signal.signal(signal.SIGCHLD, raise_error)
    try:
        with pytest.raises(RuntimeError, match="a worker died"):
            with _undisturbed():
                os.kill(os.getpid(), signal.SIGCHLD)
                done.append("first part")
                done.append("second part")
            done.append("too late")
        assert signal.getsignal(signal.SIGCHLD) is raise_error
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert done == ["first part", "second part"]
