"""Which threads are in a call of an executor: what ends a program waits for them."""

import contextlib
import os
import time
import weakref
from collections.abc import Iterator
from threading import get_ident

from poptorch.errors import Error

_POLL_S = 0.0005
_all: "weakref.WeakSet[InFlight]" = weakref.WeakSet()


class Ended(Exception):
    """The program was given up, and nothing has run: the call begins anew."""


class InFlight:
    """The calls of one executor that have begun and not ended."""

    def __init__(self):
        # Threads in calls, and in end(). Noted without a lock, in each call: to append and to
        # remove are single steps of the interpreter.
        self._callers: list[int] = []
        self._enders: list[int] = []
        _all.add(self)

    def forget(self) -> None:
        """A forked child has none of the threads but the one that forked."""
        self._callers = [caller for caller in self._callers if caller == get_ident()]
        self._enders = [ender for ender in self._enders if ender == get_ident()]

    def begin(self) -> int:
        """Notes a call of this thread; gives what :meth:`leave` takes.

        Raises:
            Ended: :meth:`end` is entered in another thread.
            poptorch.Error: It is entered in this one.
        """
        caller = get_ident()
        self._callers.append(caller)
        if self._enders:  # read after the note is made, as end() does the reverse
            self.leave(caller)
            if caller in self._enders:  # it would wait for itself
                raise Error("[call] the model is called while it is compiled again, saved or "
                            "destroyed in the same thread, from a hook of the compilation or the "
                            "handler of a signal. Call it afterwards.")
            raise Ended
        return caller

    def leave(self, caller: int) -> None:
        """A call has ended."""
        self._callers.remove(caller)

    def is_caller(self) -> bool:
        """Whether this thread is in a call."""
        return get_ident() in self._callers

    @contextlib.contextmanager
    def end(self, what: str) -> Iterator[None]:
        """Waits for the calls of other threads; none begins within.

        Args:
            what: is to be done, for the message.

        Raises:
            poptorch.Error: This thread is in a call: it is that of a signal handler.
        """
        ender = get_ident()
        if ender in self._callers:
            raise Error(f"[{what}] a call of the model is running in the same thread: the handler "
                        f"of a signal may only read its weights. Do that after the call; a handler "
                        f"that raises an exception ends it.")
        self._enders.append(ender)
        try:
            while self._callers:
                time.sleep(_POLL_S)
            yield
        finally:
            self._enders.remove(ender)


def _forget() -> None:
    for calls in list(_all):
        calls.forget()


os.register_at_fork(after_in_child=_forget)
