"""The variables of the environment that ``forward`` reads."""

import collections
import functools
import os
import sys
import threading

from poptorch._guards.guard import Guard
from poptorch._guards.statements import is_users

# The files of what leads from ``os.getenv`` to the variables.
_BETWEEN = frozenset({os.getenv.__code__.co_filename,
                      collections.abc.Mapping.get.__code__.co_filename})


class Environment:
    """Notes them while it is entered, in its thread."""

    def __init__(self):
        self._names: dict[str, None] = {}
        self._thread = threading.get_ident()

    def __enter__(self):
        kind = type(os.environ)
        self._get = kind.__getitem__

        def get(environ, name):
            if environ is os.environ and threading.get_ident() == self._thread \
                    and _is_of_user(sys._getframe(1)):
                self._names[name] = None
            return self._get(environ, name)

        kind.__getitem__ = get
        return self

    def guards(self) -> list[Guard]:
        """The guards of the variables."""
        return [Guard(f"os.environ[{name!r}]", functools.partial(os.environ.get, name), None)
                for name in self._names]

    def __exit__(self, *_):
        type(os.environ).__getitem__ = self._get


def _is_of_user(frame) -> bool:
    while frame is not None and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back
    return frame is not None and is_users(frame.f_code.co_filename)
