"""Values that ``forward`` itself counts on, and computes with: numbers in attributes, and what
containers in attributes hold."""

import dis
import enum
import functools
import numbers
import types
from collections.abc import Iterator

import torch

from poptorch._logging import logger
from poptorch._snapshot import attribute_of, is_compared, is_foreign

_READS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"})
_SETS = frozenset({"STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF"})
_LOCALS = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF"})
_STORES = frozenset({"STORE_FAST", "STORE_DEREF"})


class Counters:
    """Notes the lines that read numbers and containers in attributes, and those that set numbers.

    A counter is set by a line that reads it, as ``self.count += 1`` does, or to what was computed
    from what such a line gave a variable. Where no other line reads it, it is for the host alone.
    """

    def __init__(self):
        self._read: dict[tuple[int, str], set[tuple]] = {}
        self._counted: dict[tuple[int, str], set[tuple]] = {}
        # Of those that were read before they were set: the object, and what was read first.
        self._first: dict[tuple[int, str], tuple[object, object]] = {}
        self._anew: set[tuple[int, str]] = set()
        # The numbers that classes of the program's have.
        self._of_classes: dict[type, dict[str, object]] = {}

    def of_class(self, cls: type) -> None:
        """Takes note of the numbers that a class has before ``forward`` runs."""
        if cls not in self._of_classes:
            self._of_classes[cls] = {
                name: value for owner in reversed(cls.__mro__) if not is_foreign(owner)
                for name, value in vars(owner).items() if is_number(value)}

    def class_value(self, cls: type, name: str):
        """What a class had under a name before ``forward`` ran, as far as it is known; else what
        it has."""
        return self._of_classes.get(cls, {}).get(name, attribute_of(cls, name))

    def was_read(self, holder, name: str, value, frame: types.FrameType) -> None:
        """Takes note that a line, that of ``frame``, read an attribute."""
        if is_number(value) or is_compared(value) and not isinstance(value, torch.Tensor):
            key = id(holder), name
            self._read.setdefault(key, set()).add(_line(frame))
            if is_number(value) and key not in self._anew:
                self._first.setdefault(key, (holder, value))

    def was_set(self, holder, name: str, value, frame: types.FrameType) -> None:
        """Takes note that a line sets an attribute."""
        key, line = (id(holder), name), _line(frame)
        if key not in self._first:
            self._anew.add(key)
        elif is_number(value) and is_counting(line, self._read[key], name):
            self._counted.setdefault(key, set()).add(line)

    def lines(self, holder, name: str) -> int:
        """How many lines have read an attribute."""
        return len(self._read.get((id(holder), name), ()))

    def counted(self) -> Iterator[tuple[object, str, object, object, tuple[str, int]]]:
        """The counters that ``forward`` computes with: the object, the name, the value before and
        after, and a line that sets it."""
        for key, counted in self._counted.items():
            (holder, was), name = self._first[key], key[1]
            now = attribute_of(holder, name)
            if is_number(now) and now != was and self._read[key] - counted:
                code, line = min(counted, key=lambda place: place[1])
                yield holder, name, was, now, (code.co_filename, line)


def warn_of_count(what: str, was, now, place: str = "") -> None:
    """Warns of a value that ``forward`` changes from call to call.

    Args:
        what: the value.
        was, now: before and after the first call.
        place: where it is changed; empty if that is not known.
    """
    logger.warning(
        "[capture] forward counts with %s, from %s to %s, and reads it: each call of the program "
        "has the numbers of the first one. Make it a buffer (register_buffer) that forward changes "
        "in place, and use torch.where for what depends on it.%s", what, was, now,
        f"\n  at {place}" if place else "")


def warn_of_flag(what: str, was, now, place: str = "") -> None:
    """Warns of a flag by which ``forward`` does something in its first call alone."""
    logger.warning(
        "[capture] forward reads %s, which is %r, and sets it to %r: what it does once in PyTorch, "
        "each call of the program does again. Call the module once on the CPU before it is "
        "compiled, or use a buffer and torch.where.%s", what, was, now,
        f"\n  at {place}" if place else "")


def is_flag(value) -> bool:
    """Whether a value tells what is to be done."""
    return isinstance(value, (bool, str, enum.Enum))


def is_number(value) -> bool:
    """Whether a value is a number that can count."""
    return isinstance(value, numbers.Number) and not isinstance(value, bool)


def is_counting(line: tuple[types.CodeType, int], reads: set[tuple], name: str) -> bool:
    """Whether a line that sets a number sets it to what comes from its own value.

    Args:
        line: code and number of the line.
        reads: the lines that read the number.
        name: of the attribute or the variable.
    """
    return line in reads or line[1] in _lines_from(line[0], name)


@functools.lru_cache(maxsize=256)
def _lines_from(code: types.CodeType, name: str) -> frozenset[int]:
    """The lines that set an attribute, or a variable outside of the code, to what comes from its
    own value, by way of variables."""
    lines: dict[int, list] = {}
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = (instruction.positions and instruction.positions.lineno) or line
        lines.setdefault(line, []).append(instruction)
    known, found = set(), set()
    for line, instructions in sorted(lines.items()):
        is_own = any(one.opname in _READS and one.argval == name
                     or one.opname in _LOCALS and one.argval in known for one in instructions)
        if is_own:
            known |= {one.argval for one in instructions if one.opname in _STORES}
            found |= {line for one in instructions
                      if one.opname in _SETS and one.argval == name}
    return frozenset(found)


def _line(frame: types.FrameType) -> tuple:
    return frame.f_code, frame.f_lineno
