"""The statements of a function's code, as far as its instructions tell them apart."""

import dis
import functools
import types

from poptorch._capture.graph.source_location import is_packaged, is_pythons, is_torchs

# What ends a statement, where it leaves nothing on the stack that was not there before.
_ENDS = ("STORE_", "DELETE_", "POP_TOP", "RETURN_")

# A line, and the number of the statement within it; with the code.
Position = tuple[int, int]
Statement = tuple[types.CodeType, int, int]


@functools.lru_cache(maxsize=256)
def statements(code: types.CodeType) -> dict[Position, list[dis.Instruction]]:
    """The instructions of each statement, in the order of the code. A statement of several lines
    counts as several; branches that a line has within an expression, and what follows them there,
    as one.

    Example:
        The code of ``self.count += 1; return self.count`` has two of one line.
    """
    found: dict[Position, list[dis.Instruction]] = {}
    parts, bases = {}, {}  # of each line: its last statement, and what was on the stack before it
    line, depth, is_new = code.co_firstlineno, 0, True
    for instruction in dis.get_instructions(code):
        line = (instruction.positions and instruction.positions.lineno) or line
        if is_new or line not in parts:
            parts[line], bases[line] = parts.get(line, -1) + 1, depth
        found.setdefault((line, parts[line]), []).append(instruction)
        depth += dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        is_new = instruction.opname.startswith(_ENDS) and depth <= bases[line]
    return found


@functools.lru_cache(maxsize=256)
def positions(code: types.CodeType) -> dict[int, Position]:
    """The statement of each instruction, by its offset."""
    return {one.offset: position for position, instructions in statements(code).items()
            for one in instructions}


def statement_of(code: types.CodeType, offset: int) -> Statement:
    """The statement of the instruction at an offset, such as ``f_lasti`` of a frame."""
    return code, *positions(code).get(offset, (code.co_firstlineno, 0))


def is_users(file: str) -> bool:
    """Whether a file is of the user's program."""
    return not (is_torchs(file) or is_pythons(file) or is_packaged(file))
