"""Why one entry of the cache is not another: the option, argument or line that differs."""

from collections.abc import Iterator
from itertools import zip_longest

from poptorch._files.cache import Entry

_LINES = 3  # of the text that are shown


def nearest(entry: Entry, others: list[Entry]) -> Entry | None:
    """The one of ``others`` that differs least from ``entry``; one of the same model if possible.

    If several differ equally, the first.
    """
    def distance(other: Entry) -> tuple:
        return (other.manifest["title"] != entry.manifest["title"],
                len(list(_choices(other, entry))),
                other.manifest["arguments"] != entry.manifest["arguments"])

    return min(others, key=distance, default=None)


def differences(old: Entry, new: Entry) -> list[str]:
    """What differs, in lines; at least one."""
    found = list(_choices(old, new))
    before, now = (entry.manifest["arguments"] for entry in (old, new))
    if before != now:
        found.append(f"arguments: {before} -> {now}")
    return found + _lines(old.text, new.text)


def _choices(old: Entry, new: Entry) -> Iterator[str]:
    for what in ("settings", "facts"):
        before, now = old.manifest[what], new.manifest[what]
        for name in dict.fromkeys((*before, *now)):
            if before.get(name) != now.get(name):
                yield (f"{'option ' * (what == 'settings')}{name}: "
                       f"{before.get(name) or 'default'} -> {now.get(name) or 'default'}")


def _lines(old: str, new: str) -> list[str]:
    """The first lines of the program that differ, with their places in the user's files."""
    pairs = [pair for pair in zip_longest(old.splitlines(), new.splitlines(), fillvalue="")
             if pair[0] != pair[1]]
    if not pairs:
        return []
    found = []
    for before, now in pairs[:_LINES]:
        place = (now or before).partition("  // ")[2]
        found.append(f"{place or 'the program'}:")
        found += [f"  {mark} {line.strip().partition('  // ')[0]}"
                  for mark, line in (("-", before), ("+", now)) if line]
    if len(pairs) > _LINES:
        found.append(f"and {len(pairs) - _LINES} more lines of the program")
    return found
