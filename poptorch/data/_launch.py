"""Starts the loading process; each sharing strategy is a way to hand it the data set."""

import contextlib
import multiprocessing
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import forkserver

import torch

from poptorch.data import _worker
from poptorch.data._slots import Packed, pack, unpack
from poptorch.data._sources import Source
from poptorch.enums import SharingStrategy
from poptorch.errors import Error

_METHODS = {
    SharingStrategy.Fork: "fork",
    SharingStrategy.ForkServer: "forkserver",
    SharingStrategy.SharedMemory: "spawn",
    SharingStrategy.FileSystem: "spawn",
}


@dataclass(frozen=True)
class _InFile:
    """A source that waits in a file, which is removed once it has been read."""

    path: str

    def __call__(self) -> Source:
        with open(self.path, "rb") as file:
            source = pickle.load(file)
        os.unlink(self.path)
        return source


@dataclass(frozen=True)
class _Inherited:
    """A source whose tensors a forked process has inherited; all else of it is pickled."""

    packed: Packed

    def __call__(self) -> Source:
        return unpack(self.packed.rest, self.packed.tensors)


def launch(strategy: SharingStrategy, source: Source, settings: _worker.Settings):
    """Starts a process that loads ``source``.

    Returns:
        The process, this program's end of the connection to it, and a function to be called when
        the process has begun to load, or failed to.

    Raises:
        poptorch.Error: The data set cannot be handed over in this way.
    """
    method = _METHODS[strategy]
    workers = "fork" if strategy is SharingStrategy.Fork else multiprocessing.get_start_method()
    is_checked_fork = False
    if strategy is SharingStrategy.ForkServer and _is_fork_safe():
        # A new interpreter would import torch and the program: some seconds.
        inherited_source = _inherited(source)
        if inherited_source is not None:
            method, source, is_checked_fork = "fork", inherited_source, True
    context = torch.multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    with contextlib.ExitStack() as clean_up:
        try:
            if strategy is SharingStrategy.FileSystem:
                source = _write(source, clean_up)
            if method == "forkserver":
                _preload_server()
            inherited = ours if method == "fork" else None
            # Not a daemon: those may not have children, and torch's workers are its children.
            process = context.Process(target=_worker.main, daemon=False, name="poptorch-data",
                                      args=(theirs, source, settings, workers, inherited))
            with _unwarned() if is_checked_fork else contextlib.nullcontext():
                process.start()
        except (pickle.PicklingError, TypeError, AttributeError, RuntimeError, OSError) as error:
            ours.close()
            raise _handing_over_error(strategy, error) from error
        finally:
            theirs.close()
        return process, ours, clean_up.pop_all().close


def _is_fork_safe() -> bool:
    """Whether no other thread can hold a lock, which a fork would never see released.

    Threads of OpenMP and of BLAS, which importing torch begins, do not count: they wait while this
    one is here, and the new process does not use them. Torch's own loader forks beside them, too,
    unless the program has chosen another start method.
    """
    return multiprocessing.get_start_method() == "fork" and len(sys._current_frames()) == 1


@contextlib.contextmanager
def _unwarned() -> Iterator[None]:
    """Without the warning of Python 3.12 and later, which counts all threads: _is_fork_safe."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is multi-threaded, use of fork", DeprecationWarning)
        yield


def _inherited(source: Source) -> _Inherited | None:
    """A source for a fork; None: it does not pickle, or only while a process is started."""
    try:
        return _Inherited(pack(source))
    except Exception:
        return None


def _write(source: Source, clean_up: contextlib.ExitStack) -> _InFile:
    fd, path = tempfile.mkstemp(prefix="poptorch-data-")
    clean_up.callback(_remove, path)
    with os.fdopen(fd, "wb") as file:
        pickle.dump(source, file, protocol=pickle.HIGHEST_PROTOCOL)
    return _InFile(path)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _preload_server() -> None:
    """Lets the server import torch once, not each process that it forks."""
    names = list(getattr(forkserver._forkserver, "_preload_modules", ["__main__"]))
    if _worker.__name__ not in names:
        forkserver.set_forkserver_preload([*names, _worker.__name__])


def _handing_over_error(strategy: SharingStrategy, error: Exception) -> Error:
    return Error(f"[AsynchronousDataAccessor] the data set cannot be handed to a new process by "
                 f"SharingStrategy.{strategy.name}: {type(error).__name__}: {error}. Data set, "
                 f"sampler and collate function must be picklable (classes and functions of a "
                 f"module, no lambdas), or use SharingStrategy.Fork, which pickles nothing.")
