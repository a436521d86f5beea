"""The file as a zip of named members, with a manifest of their hashes.

The same contents give the same bytes. Nothing is compressed, so reading takes no more memory than
a multiple of the file's size, whatever the file says: see :func:`_check_sizes`.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch

from poptorch import _C
from poptorch._base import schema
from poptorch._files import place, problems, tensors
from poptorch.errors import Error
from poptorch.version import __version__

MANIFEST = "manifest.json"
SUFFIX = ".poptorch"
PROGRAM_NAME = re.compile(r"[\w-]{1,64}", re.ASCII)


@dataclass(frozen=True)
class Format:
    """A kind of file.

    Attributes:
        name: what the manifest calls it.
        version: increased with each change of what is written.
        members: every member that a file may have besides the manifest.
        facts: the form of the entries that its manifest has in addition to those of all kinds.
        is_of_release: whether only the version of poptorch that wrote it reads it.
        has_programs: whether members may be in a folder, which is named as a program of the file.
        has_weights: whether tensors are used where they are in the file, so that it is mapped.
    """

    name: str
    version: int
    members: tuple[str, ...]
    facts: dict
    is_of_release: bool = True
    has_programs: bool = False
    has_weights: bool = True

    def allows(self, member: str) -> bool:
        """Whether there may be a member of this name."""
        program, _, name = member.rpartition("/")
        return name in self.members and (not program or (
            self.has_programs and PROGRAM_NAME.fullmatch(program) is not None))


# The members of the program of an executable.
PROGRAM = ("plan.ir", "translate.ir", "rewrite.ir", "place.ir", "lower.ir", "schedule.ir",
           "partition.json", "constants.safetensors")
FORMAT_VERSION = 16
MEMBERS = (*PROGRAM, "weights.safetensors", "state.safetensors", "interface.json", "runtime.json",
           "module.json", "options.json", "rng.json", "model.json", "tensors.safetensors")
MODEL = Format("poptorch executable", FORMAT_VERSION, MEMBERS,
               {"training": bool, "model_class": str})
BUNDLE = Format("poptorch bundle", FORMAT_VERSION, MEMBERS, {"programs": {str: MODEL.facts}},
                has_programs=True)

_NAME_BYTES = 150  # of a model in a name that is made for a file; systems allow 255 in all
_HEADER_BYTES = 30  # of a member, without its name
_PADDING_ID = 0xD935  # of an extra field that only moves the data, as Android's zipalign writes it
_TIME = (1980, 1, 1, 0, 0, 0)  # of every member: the clock is no part of the contents


def write(filename, name: str, members: dict[str, bytes], facts: dict,
          kind: Format = MODEL) -> str:
    """Writes a file, or raises an Error and leaves nothing behind; returns its path.

    In a folder that exists, the file name is ``name``, that of the model, with a hash of the
    contents. ``facts`` are those of ``kind``.
    """
    hashes = {member: hashlib.sha256(data).hexdigest() for member, data in sorted(members.items())}
    manifest = {"format": kind.name, "format_version": kind.version,
                "poptorch_version": __version__, "torch_version": str(torch.__version__),
                **facts, "members": hashes}
    text = json.dumps(manifest, indent=1).encode()
    path = path_of(filename, "save")
    try:
        if os.path.isdir(path):
            safe = re.sub(r"[^\w.<>-]", "_", name).encode()[:_NAME_BYTES].decode(errors="ignore")
            path = path / f"{safe}-{hashlib.sha256(text).hexdigest()[:16]}{SUFFIX}"
        place.replace(path, lambda file: _write(file, {MANIFEST: text, **members}))
    except (OSError, ValueError) as error:
        raise Error(f"[save] cannot write {path}: {problems.why(error)}. Check that the folder "
                    f"exists, may be written to and has space for "
                    f"{sum(map(len, members.values())):,} bytes.") from error
    return str(path)


def path_of(filename, where: str) -> Path:
    """The path that a user means by ``filename``; an Error if it is not a path."""
    if not isinstance(filename, (str, bytes, os.PathLike)) or not os.fspath(filename):
        raise Error(f"[{where}] the file's name is {filename!r:.80}, expected a path: a string "
                    f"that is not empty, or a pathlib.Path. Give one.")
    return Path(os.fsdecode(filename))


def _padding(size: int) -> bytes:
    """An extra field of a zip that makes a header larger by ``size`` modulo 64."""
    size = 4 + (size - 4) % tensors.ALIGNMENT
    return struct.pack("<HH", _PADDING_ID, size - 4) + bytes(size - 4)


def _write(file, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for member, data in members.items():
            info = zipfile.ZipInfo(member, _TIME)
            info.external_attr = 0o644 << 16
            if member.endswith(".safetensors"):
                start = file.tell() + _HEADER_BYTES + len(info.filename.encode())
                info.extra = _padding(-(start + tensors.offset_to_align(data)))
            archive.writestr(info, data)


def read(filename, kind: Format = MODEL) -> tuple[dict, dict[str, bytes | memoryview]]:
    """The manifest and the members of a file. An Error unless it is whole and of this version.

    Members of tensors, and all of a file without weights, are parts of the file in memory. Those
    of weights may be written to.
    """
    path = path_of(filename, "load")
    try:
        place.checked_status(path, "read")
        with open(path, "rb") as file:
            start = file.read(4)
            size = file.seek(0, os.SEEK_END)
            return _opened(path, file, start, size, kind)
    except (OSError, ValueError) as error:
        raise Error(f"[load] cannot read {path}: {problems.why(error)}. Pass a file that save() "
                    f"or compileAndExport() wrote.") from error


def _opened(path: Path, file, start: bytes, size: int,
            kind: Format) -> tuple[dict, dict[str, bytes | memoryview]]:
    try:
        with zipfile.ZipFile(file) as archive:
            return _members(path, archive, _contents(file, kind), kind)
    except Error:
        raise
    except Exception as error:  # zipfile has many words for what may be wrong
        # EINVAL: it went to a place that is before the begin of the file.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        if start == b"PK\x03\x04":
            raise problems.damaged(
                path, f"of its {size} bytes some are missing or wrong ({error})") from error
        raise problems.foreign(
            path, f"it is not a zip archive: it begins with {start!r}") from error


def _contents(file, kind: Format) -> memoryview:
    """The bytes of a file. With weights, they can be written to, which does not change the file."""
    if kind.has_weights:
        with contextlib.suppress(OSError):  # not every file system has maps
            return memoryview(_C.FileMap(file.fileno()))
    file.seek(0)
    contents = file.read()
    return memoryview(bytearray(contents) if kind.has_weights else contents)


def _members(path: Path, archive: zipfile.ZipFile, contents: memoryview,
             kind: Format) -> tuple[dict, dict[str, bytes | memoryview]]:
    infos = {info.filename: info for info in archive.infolist()}
    if MANIFEST not in infos:
        raise problems.foreign(path, f"it is a zip without {MANIFEST}")
    _check_sizes(path, archive, len(contents))
    manifest = _manifest(path, bytes(_member(contents, infos.pop(MANIFEST))), kind)
    unknown = [name for name in infos if not kind.allows(name)]
    if unknown:
        raise problems.damaged(path, f"the zip has a member {min(unknown)!r:.80}, which "
                                     f"poptorch does not write")
    hashes = manifest["members"]
    if infos.keys() != hashes.keys():
        names = sorted(infos.keys() ^ hashes.keys())
        raise problems.damaged(
            path, f"its manifest and its contents differ in {', '.join(names)}")
    members = {}
    for name, expected in hashes.items():
        member = _member(contents, infos[name])
        found = hashlib.sha256(member).hexdigest()
        if found != expected:
            raise problems.damaged(path, f"{name} was changed: the manifest has the hash "
                                         f"{expected!r:.80}, found {found}")
        # A map would show what is written to the file later.
        is_copied = kind.has_weights and not name.endswith(".safetensors")
        members[name] = bytes(member) if is_copied else member
    return manifest, members


def _member(contents: memoryview, info: zipfile.ZipInfo) -> memoryview:
    """The bytes of a member. zipfile would copy them, and sum them up besides the hash."""
    begin = info.header_offset
    sign, names, extra = struct.unpack_from("<4s22xHH", contents, begin)
    begin += _HEADER_BYTES + names + extra
    if sign != b"PK\x03\x04" or begin + info.file_size > len(contents):
        raise zipfile.BadZipFile(f"{info.filename} is not where it should be")
    return contents[begin:begin + info.file_size]


def _check_sizes(path: Path, archive: zipfile.ZipFile, size: int) -> None:
    """Checks, before anything is read, that all members together are no larger than the file."""
    infos = archive.infolist()
    names = [info.filename for info in infos]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise problems.damaged(path, f"it has {min(twice)} twice")
    packed = sum(info.compress_size for info in infos)
    if packed > size:
        raise problems.damaged(path, f"its members have {packed} bytes, the zip file {size}")
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise problems.damaged(
                path, f"{info.filename} unpacks from {info.compress_size} to {info.file_size} "
                      f"bytes, and poptorch compresses nothing")


def _manifest(path: Path, data: bytes, kind: Format) -> dict:
    try:
        manifest = json.loads(data)
        if manifest["format"] != kind.name:
            if manifest["format"] == BUNDLE.name:
                names = ", ".join(manifest["programs"])
                raise Error(f"[load] {path} has several programs: {names}. Use "
                            f"poptorch.load_bundle(), or --program NAME of the command line.")
            if (manifest["format"], kind) == (MODEL.name, BUNDLE):
                raise Error(f"[load] {path} has one program, which has no name. Use "
                            f"poptorch.load(), or leave out --program of the command line.")
            raise problems.foreign(
                path, f"its {MANIFEST} says {manifest['format']!r:.80}, not {kind.name!r}")
        versions = {"format_version": kind.version}
        if kind.is_of_release:
            versions["poptorch_version"] = __version__
        for name, own in versions.items():
            if _release(manifest[name]) != _release(own):
                raise Error(f"[load] {path} has {name} {manifest[name]!r:.80}, this is {own!r}. "
                            f"Load it with the version that wrote it, or export the model "
                            f"again.")
        schema.check({name: manifest[name] for name in ("torch_version", "members", *kind.facts)},
                     {"torch_version": str, "members": {str: str}, **kind.facts}, "it")
        return manifest
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise problems.unreadable(path, MANIFEST, error) from error


def _release(version):
    """A version without what stands behind ``+``: the build."""
    return version.partition("+")[0] if isinstance(version, str) else version
