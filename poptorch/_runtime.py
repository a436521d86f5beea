"""Where the program is running."""

from poptorch._capture import is_capturing


def isRunningOnIpu() -> bool:
    """Returns True while the code that asks is being captured for the device.

    A model's ``forward`` may branch on it; outside it is False.

    Example:
        >>> import poptorch
        >>> poptorch.isRunningOnIpu()
        False
    """
    return is_capturing()
