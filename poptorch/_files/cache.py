"""A folder of compiled programs. A key says from what each was compiled.

An entry is a file like that of a model, with the program alone. Its name is a hash of its key: the
translated text, and the other facts that compilation depends on. In a text, the place of an
operation stands behind ``//``: its file, line and module. The folders of files are not part of the
hash. An entry that was written for files in other folders gets those of the key.

The time of the last use of an entry is the file's access time, that of its creation the
modification time.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from poptorch._base.logging import logger
from poptorch._files import archive, place
from poptorch._files.program import ProgramFile, members_of
from poptorch.errors import Error

# facts: of the key. settings, arguments: options and arguments, to explain how entries differ.
ENTRY = archive.Format("poptorch cache entry", 1, archive.PROGRAM, {
    "facts": {str: str}, "ipus": int, "title": str, "arguments": str, "settings": {str: str}},
    is_of_release=False,  # its key names the release
    has_weights=False)
SUFFIX = ".cached"
_LOCK = ".lock"
_FOLDER = re.compile(r"  // /(?:[^:/\n]*/)*")  # of a place, with what stands before it
_FILE = re.compile(r"  // /[^:\n]*")


@dataclass(frozen=True)
class Key:
    """What decides about a compiled program: the translated text, and facts by name."""

    text: str
    facts: dict[str, str]

    @property
    def name(self) -> str:
        """A hash of all but the folders of places."""
        found = hashlib.sha256(json.dumps(sorted(self.facts.items())).encode())
        found.update(_FOLDER.sub("  // ", self.text).encode())
        return found.hexdigest()[:32]


@dataclass(frozen=True)
class About:
    """What an entry says of its program to readers: see :data:`ENTRY`."""

    title: str
    arguments: str
    settings: dict[str, str]


class Entry(ProgramFile):
    """An opened entry, checked."""

    def __init__(self, path: Path):
        super().__init__(path, archive.read(path, ENTRY))
        self.facts = self.manifest["facts"]
        self._files: dict[str, str] = {}  # as the texts have them, and as they are here

    @property
    def text(self) -> str:
        """The translated text."""
        return self._text("translate.ir")

    @property
    def ipus(self) -> int:
        """The IPUs of one replica."""
        return self.manifest["ipus"]

    def fits(self, key: Key) -> bool:
        """Whether the entry has the program of a key. If it was written for files in other folders,
        its texts get those of the key."""
        text = self.text
        if text == key.text:
            return self.facts == key.facts
        self._files = dict(zip(_FILE.findall(text), _FILE.findall(key.text)))
        return (self.text, self.facts) == (key.text, key.facts)

    def _text(self, name: str) -> str:
        text = super()._text(name)
        if not self._files:
            return text
        return _FILE.sub(lambda found: self._files.get(found[0], found[0]), text)


class Folder:
    """A folder with entries of up to ``most_bytes`` in all."""

    def __init__(self, path, most_bytes: int):
        self.path = Path(os.path.abspath(path))
        self._most_bytes = most_bytes
        self._bad: tuple | None = None  # the version of an entry that cannot be used

    def path_of(self, key: Key) -> Path:
        """Where the entry of a key is."""
        return self.path / f"{key.name}{SUFFIX}"

    def find(self, key: Key) -> Entry | None:
        """The entry of a key, if there is one that is whole; a warning for one that is not."""
        path = self.path_of(key)
        try:
            status = path.stat()
        except OSError:
            return None
        if self._bad == (version := (status.st_ino, status.st_mtime_ns)):
            return None
        try:
            entry = Entry(path)
            if not entry.fits(key):
                raise Error(f"[load] {path} has the program of another key.")
        except Error as error:
            self._bad = version
            self.warn(path, error)
            return None
        with contextlib.suppress(OSError):  # others may own it
            os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))
        return entry

    @staticmethod
    def warn(path: Path, error: Exception) -> None:
        """Warns of an entry that cannot be used."""
        what = (str(error).partition("] ")[2] or str(error)).replace(f"{path} ", "it ")
        logger.warning("[cache] the entry %s cannot be used: %s poptorch compiles the model and "
                       "replaces the entry.", path, what.partition(". ")[0] + ".")

    def add(self, key: Key, executable, about: About) -> None:
        """Writes the entry of a key. Where that fails, a warning says so."""
        members = {name: data for name, data in members_of(executable).items() if data}
        facts = {"facts": key.facts, "ipus": executable.ipus, **vars(about)}
        try:
            if self.path.exists() and not self.path.is_dir():
                raise Error(f"[cache] {self.path} is not a folder. Pass one to "
                            f"enableExecutableCaching().")
            self.path.mkdir(parents=True, exist_ok=True)
            archive.write(self.path_of(key), "", members, facts, ENTRY)
        except (Error, OSError) as error:
            what = str(error).partition("] ")[2] or str(error)
            logger.warning("[cache] the compiled program is not kept: %s", what)
            return
        self.shrink(self._most_bytes, keep=self.path_of(key))

    def entries(self) -> list[Path]:
        """The files of all entries, the one that was used last first."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for path in self.path.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if path.suffix == SUFFIX:
                        found.append((-path.stat().st_atime, path))
        return [path for _, path in sorted(found)]

    def shrink(self, most_bytes: int, keep: Path | None = None) -> list[Path]:
        """Removes entries that have not been used for longest, until all others together have
        ``most_bytes``; never ``keep``. Returns the removed ones."""
        left, removed = most_bytes, []
        for path in self.entries():
            with contextlib.suppress(OSError):
                left -= path.stat().st_size
                if left < 0 and path != keep:
                    path.unlink()
                    removed.append(path)
        return removed

    def clean(self) -> list[Path]:
        """Removes what killed processes left behind; returns the removed files."""
        with contextlib.suppress(OSError):
            return place.remove_left_behind(self.path, place.SUFFIX, _LOCK)
        return []

    @contextlib.contextmanager
    def locked(self, key: Key) -> Iterator[None]:
        """Holds the lock of a key: of several processes and threads, one compiles its program.

        Where the system has no locks, or the folder cannot be written to, nothing is held.
        """
        path = self.path / f".poptorch-{key.name}{_LOCK}"
        handle = None
        with contextlib.suppress(OSError):
            self.path.mkdir(parents=True, exist_ok=True)
            handle = _lock(path)
        try:
            logger.debug("cache file locked: %s", self.path_of(key))
            yield
        finally:
            if handle is not None:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                fcntl.flock(handle, fcntl.LOCK_UN)  # a child process may have the handle, too
                os.close(handle)
            logger.debug("released the cache lock: %s", self.path_of(key))


def _lock(path: Path) -> int:
    """A handle of the file with a lock on it. The file is new, or nobody had the lock any more."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if os.fstat(handle).st_nlink:  # it is still the file of this path
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
