"""Where the program is running."""

from poptorch._base.capture_context import is_capturing
from poptorch._base.checks import at_least
from poptorch.errors import Error


def isRunningOnIpu() -> bool:
    """Returns True while the calling code is being captured for the device.

    A model's ``forward`` may branch on it; outside it is False.

    Example:
        >>> import poptorch
        >>> poptorch.isRunningOnIpu()
        False
    """
    return is_capturing()


def isCompilingWithDispatcher() -> bool:
    """Returns True while the calling code is being captured: there is no other way to compile.

    Example:
        >>> import poptorch
        >>> poptorch.isCompilingWithDispatcher()
        False
    """
    return is_capturing()


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Whether a system with so many IPUs is there. None is, so far: programs run on the IPU Model.

    Args:
        num_ipus: at least 1, the default.

    Raises:
        TypeError: Not an int.
        ValueError: Less than 1.

    Example:
        >>> import poptorch
        >>> poptorch.ipuHardwareIsAvailable()
        False
    """
    at_least(1, num_ipus, "ipuHardwareIsAvailable")
    return False


def ipuHardwareVersion() -> int:
    """The version of the system's IPUs.

    Raises:
        poptorch.Error: There is no system.

    Example:
        >>> import poptorch
        >>> try:
        ...     poptorch.ipuHardwareVersion()
        ... except poptorch.Error as error:
        ...     print("none" if "no IPU system" in error.message else "another error")
        none
    """
    raise Error("[ipuHardwareVersion] no IPU system is present: programs run on the IPU Model. "
                "Ask ipuHardwareIsAvailable() first.")
