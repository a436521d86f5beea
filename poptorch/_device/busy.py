"""The error of a device that another executor holds."""

from collections.abc import Callable

from poptorch.errors import Error


class Busy(Error):
    """Another executor holds the device, until ``is_free`` returns True."""

    def __init__(self, message: str, is_free: Callable[[], bool]):
        super().__init__(message)
        self.is_free = is_free
