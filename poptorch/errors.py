"""The exceptions that poptorch raises for problems that its user can do something about."""

import enum


class Error(RuntimeError):
    """Something the user can mend, or a failure of the device.

    Args:
        message: the whole text, ``[where] what is wrong: both values. What to do.``
        type: a short word for the kind of problem.
        location: where it happened: ``file:line``, and the module if there is one.

    Example:
        >>> import poptorch
        >>> try:
        ...     raise poptorch.Error("[input] wrong shape", location="net.py:12")
        ... except RuntimeError as error:
        ...     error.message, error.location
        ('[input] wrong shape', 'net.py:12')
    """

    def __init__(self, message: str = "", *, type: str = "poptorch_error", location: str = ""):
        super().__init__(message)
        self.message = message
        self.type = type
        self.location = location


class RecoverableError(Error):
    """A failure of the device that a reset cures.

    Args:
        message, type, location: as in :class:`Error`.
        recovery_action: ``"IPU_RESET"``, ``"LINK_RESET"``, ``"PARTITION_RESET"`` or
            ``"FULL_RESET"``.

    Raises:
        ValueError: Another recovery action.

    Example:
        >>> import poptorch
        >>> poptorch.RecoverableError("link down", recovery_action="LINK_RESET").recovery_action
        'LINK_RESET'
    """

    ACTIONS = ("IPU_RESET", "LINK_RESET", "PARTITION_RESET", "FULL_RESET")

    def __init__(self, message: str = "", *, recovery_action: str = "FULL_RESET", **details):
        super().__init__(message, **details)
        if recovery_action not in self.ACTIONS:
            raise ValueError(f"[RecoverableError] recovery_action must be one of "
                             f"{', '.join(self.ACTIONS)}, got {recovery_action!r}.")
        self.recovery_action = recovery_action


class UnrecoverableError(Error):
    """A failure of the device that no reset cures.

    Args:
        message, type, location: as in :class:`Error`.

    Example:
        >>> import poptorch
        >>> str(poptorch.UnrecoverableError("out of order"))
        'out of order'
    """


class TestErrorType(enum.Enum):
    """The kinds of failure that :func:`throw_test_error` can raise."""

    __test__ = False  # no class of tests, whatever its name says

    Poptorch = 0
    Popart = 1
    PopartInternal = 2
    Poplibs = 3
    PoplarUnrecoverable = 4
    PoplarUnknown = 5
    PoplarRecoverableFullReset = 6
    PoplarLinkError = 7


def throw_test_error(kind: TestErrorType) -> None:
    """Raises the exception of a kind of failure, for tests of programs that handle them.

    Raises:
        RecoverableError: For ``PoplarRecoverableFullReset``, with ``FULL_RESET``.
        UnrecoverableError: For ``PoplarUnrecoverable``.
        Error: For all others.
    """
    details = {"type": kind.name, "location": "throw_test_error"}
    if kind is TestErrorType.PoplarRecoverableFullReset:
        raise RecoverableError(f"test error {kind.name}", recovery_action="FULL_RESET", **details)
    if kind is TestErrorType.PoplarUnrecoverable:
        raise UnrecoverableError(f"test error {kind.name}", **details)
    raise Error(f"test error {kind.name}", **details)


def place_text(place, module: str = "") -> str:
    """``net.py:12, module "fc"`` for a place ``(file, line)`` or None; empty if nothing is known.

    Args:
        place: ``(file, line)`` in the user's program, or None.
        module: dotted path of the module, empty for the outermost one.
    """
    parts = [f"{place[0]}:{place[1]}"] if place else []
    if module:
        parts.append(f'module "{module}"')
    return ", ".join(parts)


def error_at(message: str, place, module: str = "") -> Error:
    """An :class:`Error` whose text ends with the user's place.

    Args:
        message: ``[where] what is wrong: both values. What to do.``
        place: ``(file, line)`` in the user's program, or None.
        module: dotted path of the module, empty for the outermost one.
    """
    location = place_text(place, module)
    return Error(f"{message}\n  at {location}" if location else message, location=location)
