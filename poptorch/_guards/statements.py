"""The statements of a function's code, as far as its instructions tell them apart."""

import dis
import functools
import re
import types
from collections.abc import Iterator
from typing import NamedTuple

from poptorch._capture.graph.source_location import is_packaged, is_pythons, is_torchs

# What ends a statement, where it leaves nothing on the stack that was not there before.
_ENDS = ("STORE_", "DELETE_", "POP_TOP", "RETURN_")

# By how much instructions change the stack. Python 3.14 says 0 for the last one.
_EFFECTS = {"LOAD_FAST": 1, "STORE_FAST": -1, "RETURN_VALUE": -1}

# A line, and the number of the statement within it; with the code.
Position = tuple[int, int]
Statement = tuple[types.CodeType, int, int]


class Instruction(NamedTuple):
    """An instruction that does one thing, named as Python 3.11 names it.

    Attributes:
        opname, argval, offset: as :class:`dis.Instruction` has them.
        line: the line in the file; None where Python knows none.
        effect: by how much it changes the size of the stack.
    """

    opname: str
    argval: object
    offset: int
    line: int | None
    effect: int


def instructions(code: types.CodeType) -> Iterator[Instruction]:
    """The instructions of a function's code, the same for each Python as far as variables go."""
    for one in dis.get_instructions(code):
        line = one.positions.lineno if one.positions else None
        effect = dis.stack_effect(one.opcode, one.arg, jump=False)
        for name, argument in parts_of(one.opname, one.argval):
            yield Instruction(name, argument, one.offset, line, _EFFECTS.get(name, effect))


def parts_of(name: str, argument) -> list[tuple[str, object]]:
    """The names and arguments of an instruction: two where it loads or stores two variables, as
    since Python 3.13. The variants of ``LOAD_FAST`` are named as that."""
    name = re.sub("_(BORROW|CHECK)", "", name)
    kinds = re.findall("(?:LOAD|STORE)_FAST", name)
    return list(zip(kinds, argument)) if len(kinds) == 2 else [(name, argument)]


@functools.lru_cache(maxsize=256)
def statements(code: types.CodeType) -> dict[Position, list[Instruction]]:
    """The instructions of each statement, in the order of the code. A statement of several lines
    counts as several; branches that a line has within an expression, and what follows them there,
    as one.

    Example:
        The code of ``self.count += 1; return self.count`` has two of one line.
    """
    found: dict[Position, list[Instruction]] = {}
    parts, bases = {}, {}  # of each line: its last statement, and what was on the stack before it
    line, depth, is_new = code.co_firstlineno, 0, True
    for instruction in instructions(code):
        line = instruction.line or line
        if is_new or line not in parts:
            parts[line], bases[line] = parts.get(line, -1) + 1, depth
        found.setdefault((line, parts[line]), []).append(instruction)
        depth += instruction.effect
        is_new = instruction.opname.startswith(_ENDS) and depth <= bases[line]
    return found


@functools.lru_cache(maxsize=256)
def positions(code: types.CodeType) -> dict[int, Position]:
    """The statement of each instruction, by its offset."""
    return {one.offset: position for position, found in statements(code).items()
            for one in found}


def statement_of(code: types.CodeType, offset: int) -> Statement:
    """The statement of the instruction at an offset, such as ``f_lasti`` of a frame."""
    return code, *positions(code).get(offset, (code.co_firstlineno, 0))


def is_users(file: str) -> bool:
    """Whether a file is of the user's program."""
    return not (is_torchs(file) or is_pythons(file) or is_packaged(file))
