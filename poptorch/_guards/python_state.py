"""Python values that ``forward`` changes and computes with: the statements that tell so."""

import dis
import enum
import functools
import numbers
import types

import torch

from poptorch._base.logging import logger
from poptorch._guards.statements import Position, Statement, is_users, statement_of, statements
from poptorch.errors import place_text

_READS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"})
_SETS = frozenset({"STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF"})
_LOCALS = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF"})
_STORES = frozenset({"STORE_FAST", "STORE_DEREF"})
_ADD = frozenset({"append", "appendleft", "extend", "insert"})
_COUNT_ITEMS = frozenset({"len", "sum"})


class Uses:
    """The instructions that read an attribute or a variable, and those that set it: each the code
    and an offset. Of most, nobody asks which statement it is of."""

    def __init__(self):
        self.reads: set[tuple[types.CodeType, int]] = set()
        self.sets: set[tuple[types.CodeType, int]] = set()

    def readers(self) -> set[Statement]:
        """The statements that read it."""
        return {statement_of(*one) for one in self.reads}

    def counting(self, name: str) -> Statement | None:
        """The first statement that sets it to what comes from its own value, as ``count += 1``
        does, if another statement reads it; None: there is none, so it is for the host alone."""
        reads = self.readers()
        counted = {one for one in map(lambda one: statement_of(*one), self.sets)
                   if one in reads or one[1:] in _from_itself(one[0], name)}
        return _first(counted) if reads - counted else None

    def set_after_read(self) -> Statement | None:
        """The first statement that sets it after another one of the same code has read it."""
        reads = self.readers()
        return _first({one for one in map(lambda one: statement_of(*one), self.sets) if any(
            code is one[0] and tuple(place) < one[1:] for code, *place in reads)})

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


def warn_of_python_state(what: str, was, now, place: str = "") -> None:
    """Warns of a Python value that ``forward`` changes and reads.

    Args:
        what: the value.
        was, now: before and after the first call.
        place: where it is changed; empty if that is not known.
    """
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


def is_another_flag(was, now) -> bool:
    """Whether a value that tells what is to be done became another one."""
    return isinstance(was, (bool, str, enum.Enum)) and type(now) is type(was) and now != was


def is_another_number(was, now) -> bool:
    """Whether a number is another one, or a tensor of the same kind has other values: what was
    converted or cut is what each call would make of it, too."""
    if isinstance(was, torch.Tensor) and isinstance(now, torch.Tensor):
        return was.shape == now.shape and was.dtype is now.dtype and not torch.equal(was, now)
    return is_number(was) and is_number(now) and now != was


def shown(value):
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


def _is_read(one: dis.Instruction, name: str, known: set[str]) -> bool:
    return one.opname in _READS and one.argval == name \
        or one.opname in _LOCALS and one.argval in known
