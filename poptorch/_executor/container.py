"""The file itself: a zip of named members, with a manifest that tells their sizes and hashes.

It is written beside its place and renamed, so a file is there whole or not at all. The same
contents give the same bytes.
"""

import contextlib
import errno
import hashlib
import json
import os
import tempfile
import zipfile
from pathlib import Path

import torch

from poptorch import _C
from poptorch.errors import Error
from poptorch.version import __version__

MANIFEST = "manifest.json"
FORMAT = "poptorch executable"
FORMAT_VERSION = 2
SUFFIX = ".poptorch"

_SHOWN = 300  # characters of another error in a message
_TIME = (1980, 1, 1, 0, 0, 0)  # of every member: the clock is no part of the contents


def write(filename, name: str, members: dict[str, bytes], facts: dict) -> str:
    """Writes a file.

    Args:
        filename: its path; or an existing folder, in which it gets a name made of ``name`` and a
            hash of the contents.
        name: of the model.
        members: contents by name.
        facts: further entries of the manifest.

    Returns:
        The path of the file.

    Raises:
        poptorch.Error: It cannot be written; nothing is left behind.
    """
    listed = {member: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
              for member, data in sorted(members.items())}
    manifest = {"format": FORMAT, "format_version": FORMAT_VERSION,
                "poptorch_version": __version__, "torch_version": str(torch.__version__),
                **facts, "members": listed}
    text = json.dumps(manifest, indent=1).encode()
    path = Path(filename)
    if path.is_dir():
        path = path / f"{name}-{hashlib.sha256(text).hexdigest()[:16]}{SUFFIX}"
    try:
        _replace(path, {MANIFEST: text, **members})
    except OSError as error:
        raise Error(f"[save] cannot write {path}: {error}. Check that the folder exists, may be "
                    f"written to and has space for "
                    f"{sum(map(len, members.values()))} bytes.") from error
    return str(path)


def _replace(path: Path, members: dict[str, bytes]) -> None:
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                for member, data in members.items():
                    info = zipfile.ZipInfo(member, _TIME)
                    is_text = not member.endswith(".safetensors")
                    info.compress_type = zipfile.ZIP_DEFLATED if is_text else zipfile.ZIP_STORED
                    info.external_attr = 0o644 << 16
                    archive.writestr(info, data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(beside, 0o666 & ~umask)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def read(filename) -> tuple[dict, dict[str, bytes]]:
    """Reads a file and checks that it is whole, unchanged and of this version.

    Returns:
        The manifest, and the members by name.

    Raises:
        poptorch.Error: It cannot be read, or is not such a file; the message says what to do.
    """
    path = Path(filename)
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except (OSError, ValueError) as error:
        raise _unread(path, error) from error
    try:
        with zipfile.ZipFile(path) as archive:
            return _members(path, archive)
    except Error:
        raise
    except Exception as error:  # zipfile has many words for what may be wrong
        # EINVAL: it went to a place that is before the begin of the file.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise _unread(path, error) from error
        size = path.stat().st_size
        if start == b"PK\x03\x04":
            raise damaged(path, f"of its {size} bytes some are missing or wrong ({error})") \
                from error
        raise _foreign(path, f"it begins with {start!r}, a zip with b'PK\\x03\\x04'") from error


def _members(path: Path, archive: zipfile.ZipFile) -> tuple[dict, dict[str, bytes]]:
    sizes = {info.filename: info.file_size for info in archive.infolist()}
    if sum(sizes.values()) > _C.memory_limit():
        raise damaged(path, f"unpacked it would have {sum(sizes.values())} bytes, this process "
                            f"may have {_C.memory_limit()} bytes of memory")
    if MANIFEST not in sizes:
        raise _foreign(path, f"it is a zip without {MANIFEST}")
    manifest = _manifest(path, archive.read(MANIFEST))
    listed = manifest["members"]
    if sizes.keys() - {MANIFEST} != listed.keys():
        names = sorted((sizes.keys() - {MANIFEST}) ^ listed.keys())
        raise damaged(path, f"its manifest and its contents differ in {', '.join(names)}")
    members = {}
    for name, expected in listed.items():
        data = archive.read(name)
        found = hashlib.sha256(data).hexdigest()
        if len(data) != expected["bytes"] or found != expected["sha256"]:
            raise damaged(path, f"{name} was changed: the manifest has {expected['bytes']} bytes "
                                f"with hash {expected['sha256']}, found {len(data)} with {found}")
        members[name] = data
    return manifest, members


def _manifest(path: Path, data: bytes) -> dict:
    try:
        manifest = json.loads(data)
        if manifest["format"] != FORMAT:
            raise _foreign(path, f"its {MANIFEST} says {manifest['format']!r}, not {FORMAT!r}")
        versions = {"format_version": FORMAT_VERSION, "poptorch_version": __version__}
        for name, own in versions.items():
            if manifest[name] != own:
                raise Error(f"[load] {path} has {name} {manifest[name]!r}, this is {own!r}. Load "
                            f"it with the poptorch that wrote it, or export the model again.")
        members = manifest["members"].values()
        if not isinstance(manifest["training"], bool) or not all(
                isinstance(m["bytes"], int) and isinstance(m["sha256"], str) for m in members):
            raise ValueError("an entry is of another kind")
        return manifest
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise unreadable(path, MANIFEST, error) from error


def _unread(path, error: Exception) -> Error:
    return Error(f"[load] cannot read {path}: {error}. Give the file that save() or "
                 f"compileAndExport() wrote.")


def _foreign(path, why: str) -> Error:
    return Error(f"[load] {path} is not a file of poptorch: {why}. Give the file that save() or "
                 f"compileAndExport() wrote.")


def damaged(path, why: str) -> Error:
    """The error for a file that is not as it was written."""
    return Error(f"[load] {path} is damaged: {why.removesuffix('.')}. Copy or export it again.")


def unreadable(path, member: str, error: Exception) -> Error:
    """The error for a member that is not what :func:`write` was given.

    Args:
        path: of the file.
        member: its name.
        error: what reading it led to.
    """
    why = str(error).partition("\n")[0][:_SHOWN]
    if isinstance(error, KeyError):
        why = f"no entry {why}"
    elif type(error) not in (Error, ValueError):
        why = f"{type(error).__name__}: {why}"
    return damaged(path, f"its {member} is not what poptorch writes ({why})")
