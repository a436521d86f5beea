"""How the loading process and torch's workers in it are started."""

import multiprocessing
import os
import subprocess
import sys
import threading
import warnings

import pytest
import torch
from torch.utils.data import Dataset

import poptorch
from poptorch.data import _launch
from tests.data.datasets import ASYNC, loading, options
from tests.helpers import ROOT

_IMPORTED_BY = os.getpid()
_LATER = []


class Pids(Dataset):
    """Who loads: this process, its parent, the importer of this file; and other facts."""

    def __init__(self, lock=None):
        self.lock = lock

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.tensor([os.getpid(), os.getppid(), _IMPORTED_BY, len(_LATER)])


class Shared(Dataset):
    """Rows of a tensor."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


@pytest.fixture
def alone(monkeypatch):
    """A program with no second thread of Python's, whatever else pytest has begun."""
    monkeypatch.setattr(_launch, "_is_fork_safe", lambda: True)


@pytest.fixture
def thread():
    """A second thread."""
    end = threading.Event()
    running = threading.Thread(target=end.wait)
    running.start()
    yield
    end.set()
    running.join()


def first_item(data, workers=0, strategy="ForkServer"):
    """The first sample of an asynchronous loader."""
    how = {"sharing_strategy": poptorch.SharingStrategy[strategy]}
    with loading(poptorch.DataLoader(options(), data, num_workers=workers, mode=ASYNC,
                                     async_options=how)) as loader:
        return next(iter(loader))[0].tolist()


@pytest.mark.parametrize("strategy", ["ForkServer", "FileSystem"])
def test_torch_workers_import_nothing_of_their_own(thread, strategy):
    worker, loading_process, importer, _ = first_item(Pids(), 1, strategy)
    assert importer == loading_process != os.getpid()
    assert worker != importer


def test_the_default_of_multiprocessing_is_not_a_choice(monkeypatch):
    """As with Python 3.14, where the default is not "fork"."""
    monkeypatch.setattr(multiprocessing, "get_start_method",
                        lambda allow_none=False: None if allow_none else "forkserver")
    monkeypatch.setattr(sys, "_current_frames", lambda: {1: None})
    assert _launch._is_fork_safe()


def test_a_program_with_one_thread_is_forked(alone, monkeypatch):
    monkeypatch.setattr("tests.data.test_start._LATER", [1])
    assert first_item(Pids())[1:] == [os.getpid(), os.getpid(), 1]


def test_a_program_with_threads_is_not_forked(thread, monkeypatch):
    monkeypatch.setattr("tests.data.test_start._LATER", [1])
    process, _, importer, later = first_item(Pids())
    assert (importer, later) == (process, 0)


def test_a_thread_is_seen(thread):
    assert not _launch._is_fork_safe()


PROGRAM_WITH_POOLS = """
import multiprocessing, os, sys, threading, torch, poptorch
from torch.utils.data import Dataset

class Products(Dataset):
    def __init__(self):
        self.program = os.getpid()

    def __len__(self):
        return 4

    def __getitem__(self, index):
        a = torch.full((600, 600), 1.0 + index)
        return (a @ a).max(), a.numpy().dot(a.numpy()).max(), os.getppid() == self.program

def first(strategy):
    how = {"sharing_strategy": poptorch.SharingStrategy[strategy]}
    loader = poptorch.DataLoader(poptorch.Options(), Products(), batch_size=2,
                                 mode=poptorch.DataLoaderMode.Async, async_options=how)
    items = [[x.tolist() for x in item] for item in loader]
    loader.terminate()
    return items

if __name__ == "__main__":
    torch.set_num_threads(4)
    options = poptorch.Options().showCompilationProgressBar(False)
    model = poptorch.inferenceModel(torch.nn.Linear(600, 600), options)
    wanted = model(torch.ones(600, 600))
    assert len(os.listdir("/proc/self/task")) > 1 and threading.active_count() == 1
    multiprocessing.set_start_method(sys.argv[1], force=True)
    items = first("ForkServer")
    wanted_items = [600.0 * n * n for n in (1, 2, 3, 4)]
    for part in (0, 1):
        assert [x for item in items for x in item[part]] == wanted_items
    assert torch.equal(model(torch.ones(600, 600)), wanted)
    assert multiprocessing.active_children() == []
    print(*(is_fork for _, _, forks in items for is_fork in forks))
"""


@pytest.mark.sampled
@pytest.mark.parametrize("method, is_forked", [("fork", True), ("spawn", False)])
def test_pools_of_waiting_threads_do_not_count(tmp_path, method, is_forked):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM_WITH_POOLS)
    found = subprocess.run([sys.executable, "-W", "error", program, method], text=True,
                           capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (found.stdout.split(), found.stderr) == ([str(is_forked)] * 4, "")


def test_a_fork_that_was_checked_does_not_warn(alone):
    """As from Python 3.12 on, where the system counts the threads of BLAS."""
    def fork(original=os.fork):
        warnings.warn("This process (pid=1) is multi-threaded, use of fork() may lead to deadlocks "
                      "in the child.", DeprecationWarning, stacklevel=2)
        return original()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fork", fork)
        assert first_item(Pids())[1] == os.getpid()
        with pytest.warns(DeprecationWarning, match="multi-threaded"):
            first_item(Pids(), strategy="Fork")


def test_what_only_a_starting_process_takes_goes_by_the_server(alone):
    lock = multiprocessing.get_context("forkserver").Lock()
    process, _, importer, _ = first_item(Pids(lock))
    assert importer == process


def test_tensors_of_a_forked_program_are_inherited(alone):
    rows = torch.arange(6.0).view(2, 3)
    assert first_item(Shared(rows)) == [0.0, 1.0, 2.0]
    assert not rows.is_shared()
