"""What a user sees of the frames below a call of an executor, or of a function that makes one."""

import functools
import os
from collections.abc import Callable
from types import TracebackType

from poptorch._capture.error_source import is_ours
from poptorch._capture.graph.source_location import is_torchs
from poptorch.errors import Error

SWITCH = "POPTORCH_DEBUG"


def shortens(function: Callable) -> Callable:
    """A function whose errors are :func:`shortened`."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise shortened(error)

    return call


def shortened(error: Exception) -> Exception:
    """The exception without the frames of this package and of torch, and without what caused it.

    An error of this package says all of it in its text. A problem inside of it, and all with
    ``POPTORCH_DEBUG=1``, stays as it is.
    """
    if os.environ.get(SWITCH) == "1" or "Please report this" in str(error):
        return error
    frames = list(_frames(error.__traceback__))
    kept = [frame for frame in frames if _is_users(frame)]
    if not kept or kept[-1] is not frames[-1]:  # the user's code did not raise it
        if not isinstance(error, Error) and not is_ours(error):
            return error
        error.__cause__, error.__suppress_context__ = None, True
    return error.with_traceback(_linked(kept))


def _is_users(entry: TracebackType) -> bool:
    return not is_torchs(entry.tb_frame.f_code.co_filename)


def _frames(entry: TracebackType | None):
    while entry is not None:
        yield entry
        entry = entry.tb_next


def _linked(entries: list[TracebackType]) -> TracebackType | None:
    first = None
    for entry in reversed(entries):
        first = TracebackType(first, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return first
