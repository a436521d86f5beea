"""Where the program is running."""

from poptorch._base.capture_context import is_capturing
from poptorch._base.checks import at_least
from poptorch._device import systems
from poptorch._device.device_table import DeviceTable, device_table
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
    """Whether the IPU system has so many IPUs, free or not.

    Args:
        num_ipus: at least 1, the default.

    Returns:
        False without a system: programs run on the IPU Model then. The environment variable
        ``POPTORCH_IPU_SYSTEM`` chooses one; ``Options.system`` does not count here.

    Raises:
        TypeError: Not an int.
        ValueError: Less than 1, or the variable names an unknown system.

    Example:
        >>> import poptorch
        >>> poptorch.ipuHardwareIsAvailable()
        False
    """
    at_least(1, num_ipus, "ipuHardwareIsAvailable")
    system = systems.of_environment()
    return system is not None and num_ipus <= system.ipus


def ipuHardwareVersion() -> int:
    """The version of the IPUs of the system that ``POPTORCH_IPU_SYSTEM`` names.

    Returns:
        1 (Mk1), 2 (Mk2, Bow) or 21 (Mk2 with 8-bit floating point).

    Raises:
        poptorch.Error: There is no system.
        ValueError: The variable names an unknown system.

    Example:
        >>> import poptorch
        >>> try:
        ...     poptorch.ipuHardwareVersion()
        ... except poptorch.Error as error:
        ...     print("none" if "no IPU system" in error.message else "another error")
        none
    """
    system = systems.of_environment()
    if system is None:
        raise Error("[ipuHardwareVersion] no IPU system is present: programs run on the IPU Model. "
                    "Ask ipuHardwareIsAvailable() first, or set POPTORCH_IPU_SYSTEM.")
    return system.version


def devices() -> DeviceTable:
    """The devices of the IPU system, and who holds them.

    Returns:
        A list with a row for each device, by increasing id; empty without a system, which the
        environment variable ``POPTORCH_IPU_SYSTEM`` names. A row has ``id`` (as
        ``Options.useIpuId`` takes it), ``ipus`` (how many), ``version`` (of the IPUs) and
        ``holder``: None if all its IPUs are free; otherwise the ``pid``, ``host``, ``time`` (in
        seconds since 1970), ``command`` and ``model`` of the holder of its first IPU that is
        held. ``print`` shows a table.

    Raises:
        ValueError: The variable names an unknown system.
        poptorch.Error: The folder ``POPTORCH_IPU_SYSTEM_DIR`` cannot be used.

    Example:
        >>> import poptorch
        >>> poptorch.devices()
        no IPU system: set POPTORCH_IPU_SYSTEM
    """
    return device_table()
