"""What differs between two device reports, as text."""

from collections import Counter
from collections.abc import Iterator

from poptorch._reports.device.rows import place_of
from poptorch._reports.device.units import bytes_text, count_text, seconds_text

_MOST_OPS = 10


def text(before, after) -> str:
    """A line for each difference, or ``"no differences"``."""
    lines = [*_words(before, after), *_numbers(before, after), *_options(before, after),
             *_operations(before, after)]
    return "\n".join(lines) or "no differences"


def _words(before, after) -> Iterator[str]:
    for name in ("title", "target", "fits"):
        was, now = getattr(before, name), getattr(after, name)
        if was != now:
            yield f"{name}: {_word(was)} -> {_word(now)}"


def _word(value: str | bool) -> str:
    return value if isinstance(value, str) else "yes" if value else "no"


def _numbers(before, after) -> Iterator[str]:
    for name, write in (("cycles", count_text), ("seconds", seconds_text),
                        ("throughput", lambda rate: f"{rate:,.1f} samples/s")):
        yield from _change(name, getattr(before, name), getattr(after, name), write)
    for name in ("call_seconds", "stream_seconds"):
        yield from _change(f"host {name}", before.host[name], after.host[name], seconds_text)
    yield from _change("fullest tile", before.tile_memory.peak, after.tile_memory.peak, bytes_text)
    for name in dict.fromkeys((*before.memory, *after.memory)):
        yield from _change(f"memory {name}", before.memory.get(name, 0), after.memory.get(name, 0),
                           bytes_text)


def _change(name: str, was: float, now: float, write) -> Iterator[str]:
    if was != now:
        share = f" ({(now - was) / was:+.1%})" if was else ""
        yield f"{name}: {write(was)} -> {write(now)}{share}"


def _options(before, after) -> Iterator[str]:
    for name in dict.fromkeys((*before.options, *after.options)):
        was, now = before.options.get(name, "default"), after.options.get(name, "default")
        if was != now:
            yield f"option {name}: {was} -> {now}"


def _operations(before, after) -> Iterator[str]:
    """Those of one name, module and line together."""
    was, now = _cycles(before), _cycles(after)
    changed = [place for place in dict.fromkeys((*was, *now)) if was[place] != now[place]]
    changed.sort(key=lambda place: -abs(now[place] - was[place]))
    for place in changed[:_MOST_OPS]:
        yield f"{place}: {count_text(was[place])} -> {count_text(now[place])} cycles"
    if len(changed) > _MOST_OPS:
        yield f"... and {len(changed) - _MOST_OPS} more operations"


def _cycles(report) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in report.ops:
        found[place_of(row.op, row.module, row.location)] += row.cycles
    return found
