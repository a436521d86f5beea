"""The life of one executor: the lock, and what a signal may interrupt.

docs/internals/executor.md has a table of its states. :meth:`Lifecycle.alone` is the only way from
one state to another, but for the begin and the end of a call, which take no lock.
"""

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import TypeVar

from poptorch._base import interrupts
from poptorch._capture.process_state import one_at_a_time
from poptorch._device.device import Device
from poptorch.errors import Error

_POLL_S = 0.0005
_T = TypeVar("_T")
_all: "weakref.WeakSet[Lifecycle]" = weakref.WeakSet()


class Superseded(Exception):
    """The program is not the current one any more, and nothing has run: the call begins again."""


class Lifecycle:
    """Which calls of one executor run, and what changes the program that they run."""

    def __init__(self, device: Device):
        self._device = device
        # Threads in calls, and in without_calls(). Noted without a lock, in each call: to append
        # and to remove are single steps of the interpreter.
        self._callers: list[int] = []
        self._changers: list[int] = []
        _all.add(self)

    def forget_threads(self) -> None:
        """A forked child has none of the threads but the one that forked."""
        self._callers = [caller for caller in self._callers if caller == get_ident()]
        self._changers = [changer for changer in self._changers if changer == get_ident()]

    def begin_call(self) -> int:
        """Notes a call of this thread; returns what :meth:`end_call` takes.

        Raises Superseded if another thread changes the program, and an Error if this one does.
        """
        caller = get_ident()
        self._callers.append(caller)
        if self._changers:  # read after the note is made, as without_calls() does the reverse
            self.end_call(caller)
            if caller in self._changers:  # it would wait for itself
                raise Error("[call] the model is called while it is compiled again, saved or "
                            "destroyed in the same thread, from a hook of the compilation or the "
                            "handler of a signal. Call it afterwards.")
            raise Superseded
        return caller

    def end_call(self, caller: int) -> None:
        """A call has ended."""
        self._callers.remove(caller)

    def is_in_call(self) -> bool:
        """Whether this thread is in a call."""
        return get_ident() in self._callers

    def alone(self, what: str, work: Callable[[], _T], *, waits_for_calls: bool = True) -> _T:
        """Does what changes the program: one thread of the process at a time.

        Handlers of signals run afterwards, or at the safe points of a compilation. If another
        executor holds the device that ``work`` takes, and ``POPTORCH_WAIT_FOR_IPU`` says so,
        ``work`` is called again when it is free; no lock is held meanwhile. So ``work`` checks
        first whether another thread has done it. ``what`` is the method, for messages.
        """
        def locked() -> _T:
            calls = self.without_calls(what) if waits_for_calls else contextlib.nullcontext()
            with interrupts.deferred(), calls, one_at_a_time:
                return work()

        return self._device.when_free(locked)

    @contextlib.contextmanager
    def without_calls(self, what: str) -> Iterator[None]:
        """Waits for the calls of other threads; none begins within.

        An Error that names the method ``what`` if this thread, by a signal handler, is in a call.
        """
        changer = get_ident()
        if changer in self._callers:
            raise Error(f"[{what}] a call of the model is running in the same thread: the handler "
                        f"of a signal may only read its weights. Do that after the call; a handler "
                        f"that raises an exception ends it.")
        self._changers.append(changer)
        try:
            while self._callers:
                time.sleep(_POLL_S)
            yield
        finally:
            self._changers.remove(changer)


def _forget_threads() -> None:
    for lifecycle in list(_all):
        lifecycle.forget_threads()


os.register_at_fork(after_in_child=_forget_threads)
