"""Whether torch raised an exception, or the user's program did.

A traceback has frames of Python only. What torch's C++ raises seems to come from the line of
Python that called it; there, the words tell who it was.
"""

import dis
import re
from types import FrameType

from poptorch._base.torch_private import fake_tensors
from poptorch._capture.graph import source_location

# What only the parser of arguments of torch's C++ functions says.
_PARSER = re.compile(r"\w+\(\): argument '|received an invalid combination of arguments|"
                     r"^\w+\(\) missing \d+ required positional arguments?: \"")
# How our messages begin: with the name of a function.
_OURS = re.compile(r"\[[\w.]+( \w+)?\] ")


def is_torchs(error: Exception) -> bool:
    """Whether torch, or this package in its place, raised ``error``; not the user's program, Python
    for it, or a filter that turns warnings into exceptions."""
    if isinstance(error, Warning) or error.__traceback__ is None:
        return False
    raised_here = True
    for frame, instruction, _ in reversed(frames(error)):
        file = frame.f_code.co_filename
        if source_location.is_torchs(file):
            return True
        if not source_location.is_pythons(file):
            return raised_here and _is_torchs_call(error, frame, instruction)
        raised_here = False
    return False


def is_ours(error: Exception) -> bool:
    """Whether a function of this package raised ``error``, in words for the user."""
    innermost, *_ = frames(error)[-1]
    return source_location.is_ours(innermost.f_code.co_filename) and bool(_OURS.match(str(error)))


def frames(error: Exception) -> list[tuple[FrameType, int, int]]:
    """Frame, instruction and line of each entry of the traceback, the innermost last."""
    found, entry = [], error.__traceback__
    while entry is not None:
        found.append((entry.tb_frame, entry.tb_lasti, entry.tb_lineno))
        entry = entry.tb_next
    return found


def _is_torchs_call(error: Exception, frame: FrameType, instruction: int) -> bool:
    """Whether an instruction of the user's raised ``error`` by a call of torch's C++."""
    if dis.opname[frame.f_code.co_code[instruction]] in ("RAISE_VARARGS", "RERAISE"):
        return False
    return fake_tensors.is_named_in(str(error)) or bool(_PARSER.search(str(error)))
