"""Which capture this thread is in, if any."""

import threading

_local = threading.local()


def current():
    """The capture that this thread is in, or None."""
    return getattr(_local, "capture", None)


def set_current(capture) -> None:
    """Makes ``capture`` (or None) the one that this thread is in."""
    _local.capture = capture


def is_capturing() -> bool:
    """Whether this thread is running a ``forward`` that is being captured."""
    return current() is not None
