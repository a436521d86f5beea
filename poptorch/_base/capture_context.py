"""Which capture this thread is in, if any."""

import threading

from poptorch.errors import Error

_local = threading.local()


def current():
    """The capture that this thread is in, or None."""
    return getattr(_local, "capture", None)


def set_current(capture) -> None:
    """Makes ``capture`` (or None) the one that this thread is in."""
    _local.capture = capture


def error(message: str) -> Error:
    """An Error that ends with the user's place, while ``forward`` is being captured."""
    capture = current()
    return Error(message) if capture is None else capture.recorder.error(message)


def is_capturing() -> bool:
    """Whether this thread is running a ``forward`` that is being captured."""
    return current() is not None
