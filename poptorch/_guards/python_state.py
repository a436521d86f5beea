"""Python values that ``forward`` changes and computes with: the statements that tell so."""

import enum
import functools
import numbers
import types
from collections import deque
from collections.abc import Callable

import torch

from poptorch._base.logging import logger
from poptorch._base.value_snapshot import MISSING, Snapshot, has_slots
from poptorch._guards.put_back import holds_fake
from poptorch._guards.statements import (
    Instruction,
    Position,
    Statement,
    is_users,
    statement_of,
    statements,
)
from poptorch.errors import place_text

_READS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"})
_SETS = frozenset({"STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF"})
_LOCALS = frozenset({"LOAD_FAST", "LOAD_DEREF"})
_STORES = frozenset({"STORE_FAST", "STORE_DEREF"})
_ADD = frozenset({"append", "appendleft", "extend", "insert"})
_COUNT_ITEMS = frozenset({"len", "sum"})


class Observed:
    """A value that ``forward`` reads, sets, or keeps tensors in. Subclasses say what stands there.

    Attributes:
        path: what leads to it.
        name: of the attribute or the variable.
        reads, sets: the instructions that read it, and those that set it: the code and an offset.
        first: what was read first; ``MISSING``: nothing, or it was set before.
        before: the value when it may have been read first; None: it has no guard.
    """

    def __init__(self, path: str, name: str):
        self.path, self.name = path, name
        self.reads: set[tuple[types.CodeType, int]] = set()
        self.sets: set[tuple[types.CodeType, int]] = set()
        self.first = MISSING
        self.before: Snapshot | None = None

    @property
    def text(self) -> str:
        """The value as messages name it."""
        return self.path

    def is_unchanged(self) -> bool:
        """Whether the value is as it was when it was read."""
        return self.before is not None and self.before.difference(self.value(), "") is None

    def change(self) -> tuple[str, str, str] | None:
        """How the container has changed since it was read, if that counts. An addition does not
        count, because caches are filled so; it counts for a list whose length or sum is used."""
        if self.before is None or self.value() is not self.before.value:
            return None
        held, found = self.before.value, self.before.change(self.path)
        if found is not None:
            is_read = has_slots(held) or len(self.readers()) != 1
            return found[:3] if found.is_gone or is_read else None
        if isinstance(held, (list, deque)) and not self.sets and self.counts_items() \
                and not holds_fake(held) and self.before.difference(held, "") is not None:
            return self.path, self.before.text(), Snapshot(held).text()
        return None

    def warn_of_change(self, value_of: Callable[[object], object]) -> None:
        """Warns if ``forward`` computes with it and changes it, so that in PyTorch its next call
        would compute with another value. ``value_of`` gives tensors without data their values."""
        was, now = self.first, self.own_value()
        if _is_another_flag(was, now):
            _warn(self.text, repr(was), repr(now), self.place())
        elif self.sets and was is not MISSING and (counting := self.counting()) is not None:
            was, now = value_of(was), value_of(now)
            if _is_another_number(was, now):
                _warn(self.text, _shown(was), _shown(now), self.place() or place_of(counting))
        elif (found := self.change()) is not None:
            _warn(*found)

    def readers(self) -> set[Statement]:
        """The statements that read it."""
        return {statement_of(*one) for one in self.reads}

    def setters(self) -> set[Statement]:
        """The statements that set it."""
        return {statement_of(*one) for one in self.sets}

    def counting(self) -> Statement | None:
        """The first statement that sets it to what comes from its own value, as ``count += 1``
        does, if another statement reads it; None: there is none, so it is for the host alone."""
        reads = self.readers()
        counted = {one for one in self.setters()
                   if one in reads or one[1:] in _from_itself(one[0], self.name)}
        return _first(counted) if reads - counted else None

    def first_set(self) -> Statement | None:
        """The first statement that sets it when it, or one before it in the code, has read it."""
        reads = self.readers()
        return _first({one for one in self.setters() if any(
            code is one[0] and tuple(place) <= one[1:] for code, *place in reads)})

    def counts_items(self) -> bool:
        """Whether statements add to the list that it is, and others compute with its length or
        sum, and nothing else is done with it, as is with a cache."""
        uses = {_use_of_list(*statement) for statement in self.readers()}
        return uses - {"show"} == {"add", "count"}

    def line(self) -> tuple[str, int] | None:
        """The first line of the user's that reads it; None: it is not known."""
        return min(((code.co_filename, line) for code, line, _ in self.readers()
                    if is_users(code.co_filename)), default=None)


def _first(found: set[Statement]) -> Statement | None:
    return min(found, key=lambda statement: statement[1:], default=None)


def _warn(what: str, was, now, place: str = "") -> None:
    logger.warning(
        "[capture] forward changes the Python value %s, from %s to %s, and also reads it. Python "
        "code runs only while forward is traced, so every call sees what the first one saw. If the "
        "value is the same from the second call on, call the module once on the CPU before it is "
        "wrapped; else make it a buffer (register_buffer) that forward changes in place, and use "
        "torch.where.%s", what, was, now, f"\n  at {place}" if place else "")


def place_of(statement: Statement) -> str:
    """The line of a statement, for messages."""
    return place_text((statement[0].co_filename, statement[1]))


def is_number(value) -> bool:
    """Whether a value is a number that can count."""
    return isinstance(value, numbers.Number) and not isinstance(value, bool)


def _is_another_flag(was, now) -> bool:
    """Whether a value that controls the program has changed."""
    return isinstance(was, (bool, str, enum.Enum)) and type(now) is type(was) and now != was


def _is_another_number(was, now) -> bool:
    """Whether a number differs, or a tensor of the same kind has other values. A tensor that was
    converted or cut does not count: each call would do the same to it."""
    if isinstance(was, torch.Tensor) and isinstance(now, torch.Tensor):
        return was.shape == now.shape and was.dtype is now.dtype and not torch.equal(was, now)
    return is_number(was) and is_number(now) and now != was


def _shown(value):
    """A value as a message has it: of a tensor of many numbers the sizes."""
    is_long = isinstance(value, torch.Tensor) and value.numel() > 8
    return f"{value.dtype}{list(value.shape)}" if is_long else value


def _use_of_list(code: types.CodeType, *position: int) -> str:
    """``add``, ``count`` or ``show`` (its length alone, as ``print`` does) for a statement that
    reads a list; empty for other uses, and where it decides something."""
    instructions = statements(code).get(position, ())
    names = {one.argval for one in instructions if one.opname in _READS}
    if any("JUMP_" in one.opname and "_IF_" in one.opname for one in instructions):
        return ""
    if names & _ADD:
        return "add"
    if names & _COUNT_ITEMS:
        return "show" if instructions[-1].opname == "POP_TOP" else "count"
    return ""


@functools.lru_cache(maxsize=256)
def _from_itself(code: types.CodeType, name: str) -> frozenset[Position]:
    """The statements that set an attribute, or a variable outside of the code, to what comes from
    its own value, by way of variables."""
    known, found = set(), set()
    for position, instructions in sorted(statements(code).items()):
        if any(_is_read(one, name, known) for one in instructions):
            known |= {one.argval for one in instructions if one.opname in _STORES}
            found |= {position for one in instructions
                      if one.opname in _SETS and one.argval == name}
    return frozenset(found)


def _is_read(one: Instruction, name: str, known: set[str]) -> bool:
    return one.opname in _READS and one.argval == name \
        or one.opname in _LOCALS and one.argval in known
