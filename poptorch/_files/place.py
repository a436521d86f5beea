"""A whole new file takes the place of a regular one, or nothing happens.

It is written next to its place and renamed. While that lasts, its writer holds a lock on it, which
the system takes from a process that dies: what has no lock was left behind, and the next one to
write there removes it.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_BESIDE = ".poptorch-"  # how names of unfinished files begin; then a hash of the name of the place
SUFFIX = ".part"


def replace(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Puts a new file at ``path``, with the permissions that opening it for writing would leave.

    A link leads to the file that is replaced; the link stays.
    """
    path = Path(os.path.realpath(path))
    old = _status(path)
    with contextlib.suppress(OSError):
        remove_left_behind(path.parent, SUFFIX, prefix=_prefix(path))
    file, beside = _create(path)
    try:
        with file:
            write(file)
            if old is not None:
                _give_access_of(old, path, file.fileno())
            file.flush()
            os.fsync(file.fileno())
            os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def checked_status(path: Path, what: str) -> os.stat_result:
    """Of a regular file; an OSError for anything else: to open a pipe may take for ever."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
                 stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"{kind} is there, only files are {what}")
    return status


def _status(path: Path) -> os.stat_result | None:
    """Of what is there; None if nothing is."""
    try:
        old = checked_status(path, "replaced")
    except FileNotFoundError:
        return None
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "the file there may not be written to")
    return old


def _give_access_of(old: os.stat_result, path: Path, handle: int) -> None:
    """The owner, mode and extended attributes (lists of access rights) of the file there."""
    with contextlib.suppress(PermissionError):
        os.fchown(handle, old.st_uid, old.st_gid)
    with contextlib.suppress(OSError):  # not every file system has them
        for name in os.listxattr(path):
            os.setxattr(handle, name, os.getxattr(path, name))
    os.fchmod(handle, stat.S_IMODE(old.st_mode))


def _prefix(path: Path) -> str:
    # Of a fixed length: the file's own name may be as long as names may be.
    return f"{_BESIDE}{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}-"


def _create(path: Path) -> tuple[BinaryIO, Path]:
    """A new file next to ``path``, locked."""
    while True:
        beside = path.parent / f"{_prefix(path)}{secrets.token_hex(8)}{SUFFIX}"
        handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        file = os.fdopen(handle, "wb")
        with contextlib.suppress(OSError):  # not every file system has locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:  # it was not removed as a left-over
            return file, beside
        file.close()


def remove_left_behind(folder: Path, *suffixes: str, prefix: str = _BESIDE) -> list[Path]:
    """Removes files of a folder that processes that died left, by their names.

    Returns the removed files: those that nobody has locked.
    """
    removed = []
    for name in os.listdir(folder):
        if name.startswith(prefix) and name.endswith(suffixes):
            beside = folder / name
            with contextlib.suppress(OSError), open(beside, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(beside)
                removed.append(beside)
    return removed
