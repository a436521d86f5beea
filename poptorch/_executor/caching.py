"""Steps 3 to 8, or their result from a folder of compiled programs."""

import hashlib
import os
import struct
from collections.abc import Callable
from functools import cache
from typing import BinaryIO

from poptorch import _C
from poptorch._base.extension_check import PACKAGE
from poptorch._base.logging import logger
from poptorch._device import environment
from poptorch._executor.translation import Translated
from poptorch._files.cache import About, Folder, Key
from poptorch._runtime import settings
from poptorch._runtime.wrapped import Wrapped
from poptorch.errors import Error
from poptorch.options import Options
from poptorch.options._row import shown
from poptorch.version import __version__

# What these say changes the compiled program.
_VARIABLES = ("POPTORCH_OFF", "POPTORCH_ALGORITHM", "POPTORCH_HOST", "POPTORCH_MEASURE")
_NOTES, _BUILD_ID = 4, 3  # a segment and a note of an ELF file
# With these a user wants to see the steps.
_DEBUGGING = ("POPTORCH_DUMP_IR", "POPTORCH_RELOAD_IR", "POPTORCH_PASS_LIMIT")


def compiled(wrapped: Wrapped, made: Translated, options: Options,
             progress: Callable[[str], None], placed: Callable[[int], None]):
    """The executable of a translated program. If the options or the environment name a folder for
    executables, and it is there, that one is taken; if not, the compiled one is put there.

    ``placed`` is called with the IPUs of one replica, once they are known.
    """
    module, compile_options = made.program.module, settings.compile_options(options)
    path = environment.cache_folder(options)
    # The number of a function of the host holds in one process.
    if path is None or made.program.host_sites or any(map(os.environ.get, _DEBUGGING)):
        return _C.compile(module, compile_options, progress, placed)
    folder = Folder(path, options.executable_cache_max_bytes)
    key = Key(module.text(), _facts(compile_options))

    def found():
        entry = folder.find(key)
        if entry is None:
            return None
        placed(entry.ipus)
        progress("assemble")
        try:
            # Its hashes hold, and its key names the build: this build wrote and checked it.
            executable = entry.executable(compile_options, is_proved=True)
        except Error as error:  # compiling it says whether the entry is at fault
            folder.warn(entry.path, error)
            return None
        logger.info("[cache] loaded the executable from %s", entry.path)
        return executable

    executable = found()
    if executable is None:
        with folder.locked(key):
            executable = found()  # another process may have compiled it
            if executable is None:
                about = _about(wrapped, made, options)
                logger.info("[cache] %s has no executable of %s: compiling it", folder.path,
                            about.title)
                executable = _C.compile(module, compile_options, progress, placed)
                folder.add(key, executable, about)
    return executable


def _facts(compile_options: dict) -> dict[str, str]:
    """What a compiled program depends on besides its text."""
    return {"poptorch": __version__, "build": _build(), "CPU level": _C.isa(),
            "matrix products": _C.gemm_by(),
            **{name: str(value) for name, value in sorted(compile_options.items())},
            **{name: os.environ.get(name, "") for name in _VARIABLES}}


@cache
def _build() -> str:
    """The build of the library that compiles: another one may compile differently."""
    with open(PACKAGE / "lib" / "libpoptorch.so", "rb") as file:
        found = build_id(file)
        file.seek(0)
        return found or hashlib.file_digest(file, "sha256").hexdigest()[:16]


def build_id(file: BinaryIO) -> str:
    """The hash of a shared library that its linker wrote into it; "": it wrote none."""
    header = file.read(64)
    if header[:6] != b"\x7fELF\2\1":  # of 64 bits, the lowest byte first
        return ""
    table, = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    file.seek(table)
    segments = file.read(size * count)
    for at in range(0, len(segments), size):
        kind, _, begin, _, _, length = struct.unpack_from("<IIQQQQ", segments, at)
        if kind == _NOTES:
            file.seek(begin)
            notes = file.read(length)
            while len(notes) > 12:
                name, described, number = struct.unpack_from("<III", notes)
                begin = 12 + name + -name % 4
                if number == _BUILD_ID and notes[12:12 + name] == b"GNU\0":
                    return notes[begin:begin + described].hex()
                notes = notes[begin + described + -described % 4:]
    return ""


def _about(wrapped: Wrapped, made: Translated, options: Options) -> About:
    kind = "training" if wrapped.training else "inference"
    chosen = {f"{group._PREFIX}{row.setter or row.name} {row.name}": shown(group._values[row.name])
              for group, row in options._rows()
              if not row.is_run_time and group._values[row.name] != row.default}
    return About(f"{type(wrapped.user_model).__name__}, {kind}", made.arguments.text(), chosen)
