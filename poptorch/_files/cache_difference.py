"""Why one entry of the cache is not another: the option, argument or line that differs."""

import difflib
import re
from collections import Counter
from collections.abc import Iterator

from poptorch._files.cache import Entry

_LINES = 8  # of the text that are shown
_PLACE = "  // "  # what separates an operation from its place in the user's files
_NUMBER = re.compile(r"%\d+")


def nearest(entry: Entry, others: list[Entry]) -> Entry | None:
    """The one of ``others`` that differs least from ``entry``; one of the same model if possible.

    If several differ equally, the first.
    """
    def distance(other: Entry) -> tuple:
        return (other.manifest["title"] != entry.manifest["title"],
                len(list(_choices(other, entry))),
                other.manifest["arguments"] != entry.manifest["arguments"],
                *_different_lines(other.text.splitlines(), entry.text.splitlines()))

    return min(others, key=distance, default=None)


def differences(old: Entry, new: Entry) -> list[str]:
    """What differs, in lines; at least one."""
    found = list(_choices(old, new))
    before, now = (entry.manifest["arguments"] for entry in (old, new))
    if before != now:
        found.append(f"arguments: {before} -> {now}")
    return found + _lines(old.text.splitlines(), new.text.splitlines())


def _different_lines(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines one text has and the other does not, without and with the types of values."""
    before, now = (Counter(map(_unnumbered, text)) for text in (old, new))
    added, removed = now - before, before - now
    types = " : "
    kinds = [Counter(line.rpartition(types)[0] for line in lines.elements())
             for lines in (added, removed)]
    return ((kinds[0] - kinds[1]).total() + (kinds[1] - kinds[0]).total(),
            added.total() + removed.total())


def _choices(old: Entry, new: Entry) -> Iterator[str]:
    for what in ("settings", "facts"):
        before, now = old.manifest[what], new.manifest[what]
        for name in dict.fromkeys((*before, *now)):
            if before.get(name) != now.get(name):
                yield (f"{'option ' * (what == 'settings')}{name}: "
                       f"{before.get(name) or 'default'} -> {now.get(name) or 'default'}")


def _lines(old: list[str], new: list[str]) -> list[str]:
    """The first lines of the program that differ, with their places in the user's files."""
    forms = [list(map(_unnumbered, text)) for text in (old, new)]
    changes = [change[1:] for change in difflib.SequenceMatcher(None, *forms).get_opcodes()
               if change[0] != "equal"]
    if not changes:  # other operands, or only other places
        changes = [(i, i + 1, i, i + 1) for i, (before, now) in enumerate(zip(old, new))
                   if _split(before)[0] != _split(now)[0]]
    if not changes:
        return _moved(old, new)
    found, left = [], 0
    for begin, end, new_begin, new_end in changes:
        removed, added = old[begin:end], new[new_begin:new_end]
        place = _place(added, new[new_end:]) or _place(removed, old[end:])
        shown = [("-", line) for line in removed] + [("+", line) for line in added]
        if len(removed) == len(added):
            shown = [pair for pairs in zip(shown[:len(removed)], shown[len(removed):])
                     for pair in pairs]
        kept = shown[:max(0, _LINES - len(found))]
        left += len(shown) - len(kept)
        found += kept and [f"{place or 'the program'}:",
                           *(f"  {mark} {_split(line)[0].strip()}" for mark, line in kept)]
    return found + ([f"and {left} more lines of the program"] if left else [])


def _moved(old: list[str], new: list[str]) -> list[str]:
    """The first operation that only has another place."""
    for before, now in zip(old, new):
        if before != now:
            return [f"the operations are the same, at other lines of your files: "
                    f"{_split(before)[1]} -> {_split(now)[1]}"]
    return []


def _place(lines: list[str], behind: list[str]) -> str:
    """The first place of lines. Constants have none: that of the operation behind them."""
    places = [_split(line)[1] for line in lines]
    if lines and " = constant " in lines[-1]:
        places += [_split(line)[1] for line in behind[:1]]
    return next(filter(None, places), "")


def _split(line: str) -> tuple[str, str]:
    """A line without its place, and the place."""
    what, _, place = line.partition(_PLACE)
    return what, place


def _unnumbered(line: str) -> str:
    """A line without its place and the numbers of its values, which a new line changes."""
    return _NUMBER.sub("%", _split(line)[0])
