"""The variables of the environment that ``forward`` reads."""

import os
import threading

_OWN = "POPTORCH"  # of these the package itself reads some


class Environment:
    """Notes them while it is entered, in its thread.

    Attributes:
        names: of the variables, in order.
    """

    def __init__(self):
        self.names: dict[str, None] = {}
        self._thread = threading.get_ident()

    def __enter__(self):
        kind = type(os.environ)
        self._get = kind.__getitem__

        def get(environ, name):
            if threading.get_ident() == self._thread and not str(name).startswith(_OWN):
                self.names[name] = None
            return self._get(environ, name)

        kind.__getitem__ = get
        return self

    def __exit__(self, *_):
        type(os.environ).__getitem__ = self._get
