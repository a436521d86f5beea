"""Handlers of signals at safe points only.

Python runs the handler of a signal between any two steps of a program, also where torch's C++
calls back and no exception may pass, or where half of a change has been made. While
:func:`deferred` is entered, signals with handlers in Python (Ctrl-C's, an alarm's) are noted, and
their handlers run at the next safe point: :func:`check`, or the end.
"""

import contextlib
import functools
import signal
import threading

# The function behind signal.getsignal, which turns each answer into a member of an enumeration.
from _signal import getsignal as _handler_of
from collections.abc import Callable, Iterator

# Of the main thread, the only one that Python's signal handlers run in.
_entered: "_Deferral | None" = None

_SIGNALS = tuple(sorted(signal.valid_signals()))


class _Deferral:
    """The handler of all signals meanwhile; ``handlers`` are those before it, by signal."""

    def __init__(self, handlers: dict[int, Callable]):
        self._handlers = handlers
        self._noted: dict[int, object] = {}  # signal -> frame, in the order in which they came

    def __call__(self, number: int, frame) -> None:
        self._noted.setdefault(number, frame)

    def remove(self) -> None:
        """Restores the handlers, except where a different one has been set meanwhile."""
        for number, handler in self._handlers.items():
            if _handler_of(number) is self:
                signal.signal(number, handler)

    def deliver(self) -> None:
        """Runs the handlers before, for what was noted; the first that raises ends it."""
        while self._noted:
            number = next(iter(self._noted))
            self._handlers[number](number, self._noted.pop(number))

    def deliver_last(self) -> None:
        """As :meth:`deliver`, to the last of them: an exception has those before it as context."""
        with contextlib.ExitStack() as stack:  # which runs the last callback first
            for number, frame in reversed(self._noted.items()):
                stack.callback(self._handlers[number], number, frame)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Defers handlers in the main thread; elsewhere, or within another such context, nothing."""
    global _entered
    if _entered is not None or not _is_main():
        yield
        return
    # SIG_IGN and SIG_DFL, which are numbers, end nothing half-way.
    handlers = {number: handler for number in _SIGNALS
                if callable(handler := _handler_of(number))}
    deferral = _Deferral(handlers)
    try:
        _entered = deferral
        for number in handlers:
            signal.signal(number, deferral)
        yield
    finally:
        _entered = None
        deferral.remove()
        deferral.deliver_last()


def whole(method: Callable) -> Callable:
    """A decorator: handlers of signals are deferred while the function runs."""
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
