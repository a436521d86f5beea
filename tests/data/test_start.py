"""How the loading process and torch's workers in it are started."""

import multiprocessing
import os
import threading

import pytest
import torch
from torch.utils.data import Dataset

import poptorch
from poptorch.data import _launch
from tests.data.datasets import ASYNC, loading, options

_IMPORTED_BY = os.getpid()
_LATER = []


class Pids(Dataset):
    """Who loads: this process, its parent, who imported this file; and what else is told."""

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
    """A program with no second thread, as far as the launch can see: OpenMP's may be there."""
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


def test_a_program_with_one_thread_is_forked(alone, monkeypatch):
    monkeypatch.setattr("tests.data.test_start._LATER", [1])
    assert first_item(Pids())[1:] == [os.getpid(), os.getpid(), 1]


def test_a_program_with_threads_is_not_forked(thread, monkeypatch):
    monkeypatch.setattr("tests.data.test_start._LATER", [1])
    process, _, importer, later = first_item(Pids())
    assert (importer, later) == (process, 0)


def test_a_thread_is_seen(thread):
    assert not _launch._is_fork_safe()


def test_what_only_a_starting_process_takes_goes_by_the_server(alone):
    lock = multiprocessing.get_context("forkserver").Lock()
    process, _, importer, _ = first_item(Pids(lock))
    assert importer == process


def test_tensors_of_a_forked_program_are_inherited(alone):
    rows = torch.arange(6.0).view(2, 3)
    assert first_item(Shared(rows)) == [0.0, 1.0, 2.0]
    assert not rows.is_shared()
