"""Values that ``forward`` itself counts on, and computes with: numbers in attributes, and what
containers in attributes hold."""

import enum
import functools
import numbers
import types
from collections.abc import Callable, Iterator

import torch

from poptorch._base.logging import logger
from poptorch._base.value_snapshot import attribute_of, is_compared, is_foreign
from poptorch._guards.outer_name import is_users
from poptorch._guards.statements import Place, Statement, statement_of, statements

_READS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"})
_SETS = frozenset({"STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF"})
_LOCALS = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF"})
_STORES = frozenset({"STORE_FAST", "STORE_DEREF"})
_ADD = frozenset({"append", "appendleft", "extend", "insert"})
_COUNT_ITEMS = frozenset({"len", "sum"})


class Counters:
    """Notes the statements that read numbers, tensors and containers in attributes, and those that
    set numbers and tensors.

    A counter is set by a statement that reads it, as ``self.count += 1`` does, or to what was
    computed from what such a one gave a variable. Where no other statement reads it, it is for the
    host alone.
    """

    def __init__(self):
        # By code and the offset of an instruction: of most, nobody asks which statement it is of.
        self._read: dict[tuple[int, str], set[tuple[types.CodeType, int]]] = {}
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
        """Takes note that a statement, that of ``frame``, read an attribute."""
        if is_number(value) or is_compared(value):
            key = id(holder), name
            self._read.setdefault(key, set()).add((frame.f_code, frame.f_lasti))
            if _counts(value) and key not in self._anew:
                self._first.setdefault(key, (holder, value))

    def was_set(self, holder, name: str, value, frame: types.FrameType) -> None:
        """Takes note that a statement sets an attribute."""
        key = id(holder), name
        if key not in self._first:
            self._anew.add(key)
        elif _counts(value):
            statement = statement_of(frame.f_code, frame.f_lasti)
            if is_counting(statement, self._readers(key), name):
                self._counted.setdefault(key, set()).add(statement)

    def readers(self, holder, name: str) -> int:
        """How many statements have read an attribute."""
        return len(self._readers((id(holder), name)))

    def line(self, holder, name: str) -> tuple[str, int] | None:
        """The first line of the user's that has read an attribute; None: it is not known."""
        return min(((code.co_filename, line) for code, line, _ in self._readers((id(holder), name))
                    if is_users(code.co_filename)), default=None)

    def counts_items(self, holder, name: str) -> bool:
        """Whether statements add to the list in an attribute, and others compute with its length
        or sum, and nothing else is done with it, as is with a cache."""
        uses = {_use_of_list(*statement) for statement in self._readers((id(holder), name))}
        return uses - {"show"} == {"add", "count"}

    def _readers(self, key: tuple[int, str]) -> set[Statement]:
        return {statement_of(*place) for place in self._read.get(key, ())}

    def counted(self, value_of: Callable[[torch.Tensor], torch.Tensor | None]) \
            -> Iterator[tuple[object, str, object, object, tuple[str, int]]]:
        """The counters that ``forward`` computes with: the object, the name, the value before and
        after, as messages have them, and the line of a statement that sets it.

        Args:
            value_of: the values of a tensor, if they are known, also of one of ``forward``'s.
        """
        for key, counted in self._counted.items():
            (holder, was), name = self._first[key], key[1]
            now = attribute_of(holder, name)
            if isinstance(was, torch.Tensor) and isinstance(now, torch.Tensor):
                was, now = value_of(was), value_of(now)
            if _has_changed(was, now) and self._readers(key) - counted:
                code, line, _ = min(counted, key=lambda place: place[1:])
                yield holder, name, _shown(was), _shown(now), (code.co_filename, line)


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


def is_flag(value) -> bool:
    """Whether a value tells what is to be done."""
    return isinstance(value, (bool, str, enum.Enum))


def is_number(value) -> bool:
    """Whether a value is a number that can count."""
    return isinstance(value, numbers.Number) and not isinstance(value, bool)


def _counts(value) -> bool:
    return is_number(value) or isinstance(value, torch.Tensor)


def _has_changed(was, now) -> bool:
    """Whether a number is another one, or a tensor of the same kind has other values: what was
    converted or cut is what each call would make of it, too."""
    if isinstance(was, torch.Tensor) and isinstance(now, torch.Tensor):
        return was.shape == now.shape and was.dtype is now.dtype and not torch.equal(was, now)
    return is_number(was) and is_number(now) and now != was


def _shown(value):
    """A value as a message has it: of a tensor of many numbers the sizes."""
    is_long = isinstance(value, torch.Tensor) and value.numel() > 8
    return f"{value.dtype}{list(value.shape)}" if is_long else value


def is_counting(statement: Statement, reads: set[Statement], name: str) -> bool:
    """Whether a statement that sets a number sets it to what comes from its own value.

    Args:
        statement: that sets it.
        reads: those that read the number.
        name: of the attribute or the variable.
    """
    return statement in reads or statement[1:] in _from_itself(statement[0], name)


def _use_of_list(code: types.CodeType, *place: int) -> str:
    """``add``, ``count`` or ``show`` (its length alone, as ``print`` does) for a statement that
    reads a list; empty for other uses, and where it decides something."""
    instructions = statements(code).get(place, ())
    names = {one.argval for one in instructions if one.opname in _READS}
    if any("JUMP_" in one.opname and "_IF_" in one.opname for one in instructions):
        return ""
    if names & _ADD:
        return "add"
    if names & _COUNT_ITEMS:
        return "show" if instructions[-1].opname == "POP_TOP" else "count"
    return ""


@functools.lru_cache(maxsize=256)
def _from_itself(code: types.CodeType, name: str) -> frozenset[Place]:
    """The statements that set an attribute, or a variable outside of the code, to what comes from
    its own value, by way of variables."""
    known, found = set(), set()
    for place, instructions in sorted(statements(code).items()):
        is_own = any(one.opname in _READS and one.argval == name
                     or one.opname in _LOCALS and one.argval in known for one in instructions)
        if is_own:
            known |= {one.argval for one in instructions if one.opname in _STORES}
            found |= {place for one in instructions
                      if one.opname in _SETS and one.argval == name}
    return frozenset(found)
