"""Ctrl-C at safe points only.

Python runs the handler of a signal between any two steps of a program, also where torch's C++
calls back and no exception may pass, or where half of a change has been made. While
:func:`deferred` is entered, SIGINT is noted, and its handler runs at the next safe point:
:func:`check`, or the end.
"""

import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterator

# Of the main thread, the only one that Python's signal handlers run in.
_entered: "_Deferral | None" = None


class _Deferral:
    """The handler of SIGINT meanwhile.

    Args:
        handler: the one before it.
    """

    def __init__(self, handler: Callable):
        self._handler = handler
        self._noted = None

    def __call__(self, number: int, frame) -> None:
        self._noted = number, frame

    def deliver(self) -> None:
        """Runs the handler before, which may raise, for what was noted."""
        if self._noted is not None:
            noted, self._noted = self._noted, None
            self._handler(*noted)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Defers SIGINT in the main thread; elsewhere, or within another such context, nothing."""
    global _entered
    handler = signal.getsignal(signal.SIGINT) if _entered is None and _is_main() else None
    if not callable(handler):  # SIG_IGN and SIG_DFL end nothing half-way
        yield
        return
    deferral = _Deferral(handler)
    signal.signal(signal.SIGINT, deferral)
    try:
        _entered = deferral
        yield
    finally:
        _entered = None
        if signal.getsignal(signal.SIGINT) is deferral:
            signal.signal(signal.SIGINT, handler)
        deferral.deliver()


def whole(method: Callable) -> Callable:
    """A decorator: SIGINT is deferred while the function runs."""
    @functools.wraps(method)
    def call(*args, **kwargs):
        with deferred():
            return method(*args, **kwargs)

    return call


def check() -> None:
    """A safe point: what was deferred until now is delivered, and may raise."""
    if _entered is not None and _is_main():
        _entered.deliver()


def _is_main() -> bool:
    return threading.get_ident() == threading.main_thread().ident
