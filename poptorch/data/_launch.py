"""Starts the loading process; each sharing strategy is a way to hand it the data set."""

import contextlib
import functools
import multiprocessing
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable
from multiprocessing import forkserver

import torch

from poptorch.data import _worker
from poptorch.data._slots import pack, unpack
from poptorch.data._sources import Source
from poptorch.enums import SharingStrategy
from poptorch.errors import Error

_METHODS = {
    SharingStrategy.Fork: "fork",
    SharingStrategy.ForkServer: "forkserver",
    SharingStrategy.SharedMemory: "spawn",
    SharingStrategy.FileSystem: "spawn",
}


def launch(strategy: SharingStrategy, source: Source, settings: _worker.Settings):
    """Starts a process that loads ``source``.

    Returns the process, this program's end of the connection to it, and a function to be called
    when the process has begun to load, or failed to.
    """
    method = _METHODS[strategy]
    workers = "fork" if strategy is SharingStrategy.Fork else _start_method()
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
            with warnings.catch_warnings():
                if is_checked_fork:  # Python 3.12 and later count all threads: _is_fork_safe
                    warnings.filterwarnings("ignore", ".* is multi-threaded, use of fork",
                                            DeprecationWarning)
                process.start()
        except (pickle.PicklingError, TypeError, AttributeError, RuntimeError, OSError) as error:
            ours.close()
            raise Error(
                f"[AsynchronousDataAccessor] the data set cannot be handed to a new process by "
                f"SharingStrategy.{strategy.name}: {type(error).__name__}: {error}. Data set, "
                f"sampler and collate function must be picklable (classes and functions of a "
                f"module, no lambdas), or use SharingStrategy.Fork, which pickles nothing."
            ) from error
        finally:
            theirs.close()
        return process, ours, clean_up.pop_all().close


def _is_fork_safe() -> bool:
    """Whether no other thread can hold a lock, which a fork would never see released.

    Threads of OpenMP and of BLAS, which importing torch starts, do not count: they wait while this
    thread runs, and the new process does not use them. Torch's own loader also forks while they
    exist, unless the program has chosen another start method.
    """
    return _start_method() == "fork" and len(sys._current_frames()) == 1


def _start_method() -> str:
    """How the program starts processes; "fork" if it chose no method. From Python 3.14 on the
    default is "forkserver", which imports torch and the program again in each process."""
    return multiprocessing.get_start_method(allow_none=True) or "fork"


def _inherited(source: Source) -> Callable[[], Source] | None:
    """What gives a source after a fork, which inherits its tensors; all else of it is pickled.
    None: it does not pickle, or only while a process is started."""
    try:
        packed = pack(source)
    except Exception:
        return None
    return functools.partial(unpack, packed.rest, packed.tensors)


def _write(source: Source, clean_up: contextlib.ExitStack) -> Callable[[], Source]:
    fd, path = tempfile.mkstemp(prefix="poptorch-data-")
    clean_up.callback(os.unlink, path)
    with os.fdopen(fd, "wb") as file:
        pickle.dump(source, file, protocol=pickle.HIGHEST_PROTOCOL)
    return functools.partial(_read, path)


def _read(path: str) -> Source:
    with open(path, "rb") as file:
        return pickle.load(file)


def _preload_server() -> None:
    """Lets the server import torch once, not each process that it forks."""
    names = list(getattr(forkserver._forkserver, "_preload_modules", ["__main__"]))
    if _worker.__name__ not in names:
        forkserver.set_forkserver_preload([*names, _worker.__name__])
