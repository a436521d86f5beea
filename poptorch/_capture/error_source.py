"""Whether torch raised an exception, or the user's program did.

A traceback has frames of Python only. What torch's C++ raises seems to come from the line of
Python that called it; there, the instruction that raised and the source of the line tell who it
was.
"""

import ast
import builtins
import dis
import inspect
import itertools
import linecache
import re
from types import FrameType

import torch

from poptorch._capture.graph import source_location

# What only the parser of arguments of torch's C++ functions says.
_PARSER = re.compile(r"\w+\(\): argument '|received an invalid combination of arguments|"
                     r"^\w+\(\) missing \d+ required positional arguments?: \"")
_PACKAGES = ("torch", "poptorch")
# How our messages begin: with the name of a function.
_OURS = re.compile(r"\[[\w.]+( \w+)?\] ")


def is_torchs(error: Exception) -> bool:
    """Whether torch, or this package in its place, raised ``error``.

    Not so what the user's program raises, what Python and its standard library raise for it, and
    warnings that a filter turns into exceptions.
    """
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
    """Whether an instruction of the user's raised ``error`` by a call of torch."""
    name = dis.opname[frame.f_code.co_code[instruction]]
    if name in ("RAISE_VARARGS", "RERAISE"):
        return False
    if "FakeTensor" in str(error) or _PARSER.search(str(error)):
        return True
    called = _called(frame, instruction) if "CALL" in name else None
    if isinstance(called, ast.Attribute):  # of something that the source does not show
        return str(error).startswith(f"{called.attr}()") and hasattr(torch.Tensor, called.attr)
    return called is not None and _is_of_torch(called)


def _is_of_torch(called) -> bool:
    owners = (called, getattr(called, "__objclass__", None), getattr(called, "__self__", None))
    names = [getattr(owner, "__module__", None) for owner in (*owners, type(called))]
    return any(isinstance(name, str) and name.split(".")[0] in _PACKAGES for name in names)


def _called(frame: FrameType, instruction: int):
    """What the call at an instruction calls; its expression where only that is known; or None."""
    positions = itertools.islice(frame.f_code.co_positions(), instruction // 2, None)
    line, end_line, column, end_column = next(positions)
    if None in (line, end_line, column, end_column):
        return None
    lines = [text.encode() for text in linecache.getlines(
        frame.f_code.co_filename, frame.f_globals)[line - 1:end_line]]
    if not lines:
        return None
    before = lines[0][:column]
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    try:
        tree = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(tree, ast.Call):
        return None
    if before.rstrip().endswith(b".") and isinstance(tree.func, ast.Name):
        return ast.Attribute(ast.Constant(None), tree.func.id)
    return _value(tree.func, frame)


def _value(tree: ast.expr, frame: FrameType):
    """The value of a name, or of an attribute of one, without running any code."""
    if isinstance(tree, ast.Name):
        for names in (frame.f_locals, frame.f_globals, vars(builtins)):
            if tree.id in names:
                return names[tree.id]
        return None
    if not isinstance(tree, ast.Attribute):
        return None
    owner = _value(tree.value, frame)
    if owner is None or isinstance(owner, ast.Attribute):
        return tree
    return inspect.getattr_static(owner, tree.attr, None)
