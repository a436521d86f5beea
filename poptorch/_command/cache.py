"""``poptorch cache``."""

import argparse
import os
import time
from pathlib import Path

from poptorch._command import printed
from poptorch._files.cache import SUFFIX, Entry, Folder
from poptorch._files.cache_difference import differences, nearest
from poptorch._reports.device.units import bytes_text
from poptorch.errors import Error

SUMMARY = "list, compare and remove compiled programs of a cache"
EXAMPLES = ("poptorch cache list --dir cache", "poptorch cache why --dir cache --json",
            "poptorch cache prune --dir cache --max-bytes 1000000000")


def add_arguments(parser) -> None:
    """Adds the actions and their arguments."""
    parts = parser.add_subparsers(required=True, metavar="ACTION", title="actions")
    for name, act, words in (
            ("list", list_entries, "list the entries, the one that was used last first"),
            ("why", why, "say why an entry was compiled: how it differs from the nearest one"),
            ("prune", prune, "remove what killed processes left, and damaged entries")):
        part = parts.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        part.add_argument("--dir", default=os.environ.get("POPTORCH_CACHE_DIR"),
                          help="the folder; default: POPTORCH_CACHE_DIR")
        if name == "prune":
            part.add_argument("--max-bytes", type=_bytes, help="also remove the entries that have "
                              "not been used for longest, until so many bytes are left; 0: all")
        if name == "why":
            part.add_argument("entry", nargs="?", help="the beginning of its name; default: the "
                              "one that was compiled last")
        printed.add_json(part)
        part.set_defaults(act=act)


def run(arguments) -> None:
    """Does the chosen action."""
    arguments.act(arguments)


def list_entries(arguments) -> None:
    """Prints a line for each entry."""
    rows = [_row(path) for path in _folder(arguments).entries()]
    if arguments.json:
        printed.as_json(rows)
        return
    for row in rows:
        print(printed.short(f"{row['name'][:12]}  {bytes_text(row['bytes']):>9}  used "
                            f"{row['used']}  {row['title']}"))
        if row["arguments"]:
            print(printed.short(f"    {row['arguments']}"))
    print(f"{len(rows)} entries, {bytes_text(sum(row['bytes'] for row in rows))}")


def why(arguments) -> None:
    """Prints how an entry differs from the nearest one that is older."""
    paths = _folder(arguments).entries()
    if arguments.entry is None:
        chosen = max(paths, key=lambda path: path.stat().st_mtime_ns, default=None)
    else:
        chosen = next((path for path in paths if path.name.startswith(arguments.entry)), None)
    if chosen is None:
        what = f"no entry {arguments.entry!r}" if arguments.entry else "no entries"
        raise Error(f"[cache] {arguments.dir} has {what}. `python -m poptorch cache list` shows "
                    f"the entries.")
    entry = _opened(chosen)
    if entry is None:
        raise Error(f"[cache] the entry {_name(chosen)} is damaged. `python -m poptorch cache "
                    f"prune` removes it; the next compilation writes it again.")
    made = chosen.stat().st_mtime_ns
    others = [_opened(path) for path in paths if path != chosen and path.stat().st_mtime_ns <= made]
    other = nearest(entry, list(filter(None, others)))
    found = [] if other is None else differences(other, entry)
    if arguments.json:
        printed.as_json({"name": _name(chosen), "nearest": other and _name(other.path),
                         "differences": found})
        return
    print(f"{_name(chosen)[:12]}  {entry.manifest['title']}")
    if other is None:
        print("was compiled first: no older entry is left.")
        return
    print(f"was compiled because it differs from {_name(other.path)[:12]}  "
          f"{other.manifest['title']}:")
    for line in found:
        print(f"  {line}")


def prune(arguments) -> None:
    """Removes entries, and prints what was removed."""
    folder = _folder(arguments)
    removed = folder.clean()
    for path in folder.entries():
        if _opened(path) is None:
            path.unlink(missing_ok=True)
            removed.append(path)
    if arguments.max_bytes is not None:
        removed += folder.shrink(arguments.max_bytes)
    if arguments.json:
        printed.as_json({"removed": list(map(str, removed)), "left": len(folder.entries())})
        return
    for path in removed:
        print(f"removed {path}")
    print(f"{len(removed)} files removed, {len(folder.entries())} entries left")


def _folder(arguments) -> Folder:
    if not arguments.dir:
        raise Error("[cache] no folder is given. Pass --dir, or set POPTORCH_CACHE_DIR.")
    if not os.path.isdir(arguments.dir):
        raise Error(f"[cache] {arguments.dir} is not a folder. Pass the one that "
                    f"enableExecutableCaching() was given.")
    return Folder(arguments.dir, 0)


def _bytes(text: str) -> int:
    """A number of bytes, for an option."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 0, got {text!r}")
    return int(text)


def _opened(path: Path) -> Entry | None:
    try:
        return Entry(path)
    except Error:
        return None


def _name(path: Path) -> str:
    return path.name.removesuffix(SUFFIX)


def _row(path: Path) -> dict:
    status, entry = path.stat(), _opened(path)
    about = {"title": "damaged", "arguments": "", "settings": {}, "facts": {}} \
        if entry is None else entry.manifest
    used = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status.st_atime))
    return {"name": _name(path), "bytes": status.st_size, "used": used,
            **{key: about[key] for key in ("title", "arguments", "settings", "facts")}}
