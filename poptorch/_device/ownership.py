"""Which process and executor holds which IPU of the virtual system.

Each IPU has a file, and its holder a POSIX record lock on it. The kernel frees these locks when the
process ends, however it ends, and forked children do not inherit them. A process that closes a file
loses its lock, so each file is opened once and stays open.
"""

import contextlib
import fcntl
import json
import os
import shlex
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from poptorch._base import interrupts
from poptorch.errors import Error

FOLDER = "POPTORCH_IPU_SYSTEM_DIR"
_COMMAND_CHARACTERS = 100
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux

# Reentrant: the garbage collector may free a device in a thread that takes a different device.
_lock = threading.RLock()
_files: dict[str, int] = {}  # path -> file descriptor
_claims: "dict[tuple[str, int], Claim]" = {}  # folder and IPU -> who in this process holds it


class Holder(NamedTuple):
    """Who holds an IPU.

    Attributes:
        pid: of the process.
        host: its name.
        time: when the process took the IPU, in seconds since 1970.
        command: the command line, at most 100 characters.
        model: the name of the executor's model.
    """

    pid: int
    host: str
    time: float
    command: str
    model: str

    def __str__(self) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(self.time))
        return f"process {self.pid} on {self.host} (model {self.model}, since {since}: " \
               f"{self.command})"


class Claim:
    """Some IPUs that one executor holds."""

    def __init__(self, folder: str, ipus: range):
        self.folder = folder
        self.ipus = ipus
        self._keys = {(folder, ipu) for ipu in ipus}
        for key in self._keys:
            _claims[key] = self

    def release(self) -> None:
        """Gives the IPUs back. Does nothing the second time, and in a forked child."""
        with _lock:
            for folder, ipu in sorted(self._keys):
                if _claims.get((folder, ipu)) is self:  # no newer claim of the executor has it
                    del _claims[folder, ipu]
                    fcntl.lockf(_files[_path(folder, ipu)], fcntl.LOCK_UN)
            self._keys.clear()


def take(folder: str, groups: Iterable[range], model: str, own: Claim | None) -> Claim | None:
    """Takes all IPUs of the first group that is free, in increasing order; None if none is.

    ``own`` counts as free: the new claim replaces it. ``model`` is named to other processes.
    """
    with _exclusive(folder):
        for group in groups:
            if _take_group(folder, group, own):
                claim = Claim(folder, group)
                _write(folder, group, model)
                if own is not None:
                    own.release()
                return claim
    return None


def holders(folder: str, ipus: Iterable[int]) -> dict[int, Holder]:
    """Who holds which of some IPUs; those that are free are left out."""
    with _exclusive(folder):
        found = ((ipu, _holder(folder, ipu)) for ipu in ipus)
        return {ipu: holder for ipu, holder in found if holder is not None}


def is_free(folder: str, groups: Iterable[range], own: Claim | None) -> bool:
    """Whether one of the groups is free; ``own`` counts as free."""
    with _lock:
        return any(all(_claims.get((folder, ipu)) in (None, own)
                       and _locked_by(_opened(_path(folder, ipu))) is None for ipu in group)
                   for group in groups)


def folder_of(system: str) -> str:
    """The folder with the files of a system. It is made if it does not exist."""
    folder = os.environ.get(FOLDER)
    is_shared = bool(folder)
    if not folder:
        folder = os.path.join(tempfile.gettempdir(), f"poptorch-{os.getuid()}-{system}")
    try:
        os.makedirs(folder, 0o777 if is_shared else 0o700, exist_ok=True)
        owner = os.stat(folder).st_uid
    except OSError as error:
        raise Error(f"[{FOLDER}] cannot use the folder {folder}, which holds the files of the IPU "
                    f"system {system}: {error.strerror}. Set {FOLDER} to a folder that you can "
                    f"write to.") from error
    if not is_shared and owner != os.getuid():
        raise Error(f"[{FOLDER}] the folder {folder}, which holds the files of the IPU system "
                    f"{system}, belongs to user {owner}, and this process to user {os.getuid()}. "
                    f"Set {FOLDER} to another folder.")
    return os.path.realpath(folder)


@contextlib.contextmanager
def _exclusive(folder: str) -> Iterator[None]:
    """One thread of one process at a time looks at the locks of a system, or takes some."""
    with interrupts.deferred(), _lock:  # a handler may call this, too
        file = _opened(os.path.join(folder, "system.lock"))
        fcntl.lockf(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(file, fcntl.LOCK_UN)


def _take_group(folder: str, group: range, own: Claim | None) -> bool:
    """Locks all IPUs of a group, or none."""
    if any(_claims.get((folder, ipu)) not in (None, own) for ipu in group):
        return False
    taken = []
    for ipu in group:
        file = _opened(_path(folder, ipu))
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            for other, other_file in taken:
                if (folder, other) not in _claims:  # it was not held before
                    fcntl.lockf(other_file, fcntl.LOCK_UN)
            return False
        taken.append((ipu, file))
    return True


def _write(folder: str, group: range, model: str) -> None:
    command = shlex.join(sys.orig_argv).replace("\n", " ")
    if len(command) > _COMMAND_CHARACTERS:
        command = command[:_COMMAND_CHARACTERS - 3] + "..."
    holder = Holder(os.getpid(), socket.gethostname(), time.time(), command, model)
    text = (json.dumps(holder._asdict()) + "\n").encode()
    for ipu in group:
        file = _files[_path(folder, ipu)]
        os.pwrite(file, text, 0)
        os.ftruncate(file, len(text))


def _holder(folder: str, ipu: int) -> Holder | None:
    file = _opened(_path(folder, ipu))
    pid = os.getpid() if (folder, ipu) in _claims else _locked_by(file)
    if pid is None:
        return None
    try:
        return Holder(**json.loads(os.pread(file, 4096, 0)))
    except (ValueError, TypeError):  # the file was written by something else
        return Holder(pid, "an unknown host", 0.0, "unknown command", "unknown")


def _locked_by(file: int) -> int | None:
    """The process other than this one that has a lock on a file; None if none has."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else pid


def _path(folder: str, ipu: int) -> str:
    return os.path.join(folder, f"ipu{ipu}.lock")


def _opened(path: str) -> int:
    file = _files.get(path)
    is_claimed = any(_path(*key) == path for key in _claims)
    if file is not None and not is_claimed and not _is_at(path, file):
        del _files[path]
        os.close(file)
        file = None
    if file is None:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise Error(f"[{FOLDER}] cannot open {path}, the file of an IPU: {error.strerror}. Set "
                        f"{FOLDER} to a folder that you can write to.") from error
        _files[path] = file
    return file


def _is_at(path: str, file: int) -> bool:
    """Whether an open file is still that of a path: somebody may have removed the folder."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def _begin_anew() -> None:
    """In a process that was forked: the locks belong to the other one."""
    global _lock
    _lock = threading.RLock()
    for claim in _claims.values():
        claim._keys.clear()
    _claims.clear()
    for file in _files.values():
        os.close(file)
    _files.clear()


os.register_at_fork(after_in_child=_begin_anew)
