"""The exceptions that poptorch raises for problems that its user can do something about."""

import enum
import functools

_AT = "\n  at "


class Error(RuntimeError):
    """Something the user can fix, or a failure of the device.

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
        self.location = location or _location_in(message)


def _location_in(message: str) -> str:
    """The place that the text of an error of the core ends with."""
    return message.partition(_AT)[2].partition("\n")[0].partition(", step ")[0]


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
    return Error(f"{message}{_AT}{location}" if location else message, location=location)


def placed(error: Error, place, module: str = "", call: str = "") -> Error:
    """``error`` itself, with a text that ends with the user's place if it did not yet.

    Args:
        error: to be completed.
        place: ``(file, line)`` in the user's program, or None.
        module: dotted path of the module, empty for the outermost one.
        call: what was called, for a line before the place.
    """
    text, at, rest = error.message.partition(_AT)
    if not at and (location := place_text(place, module)):
        error.location, at, rest = location, _AT, location
    error.message = f"{text}\n  in {call}{at}{rest}" if call else f"{text}{at}{rest}"
    error.args = (error.message, *error.args[1:])
    return error


def also(kind: type[BaseException], message: str, *, type: str = "poptorch_error",
         location: str = "", details: dict | None = None) -> Error:
    """An :class:`Error` that is caught as ``kind``, too.

    Args:
        kind: a class of exceptions, that of errors included.
        message, type, location: as in :class:`Error`.
        details: further attributes.
    """
    kind = _both(kind)
    try:
        error = kind.__bases__[-1].__new__(kind)
    except TypeError:  # a class that cannot do without arguments
        error = Error()
    error.__dict__.update(details or {})
    error.message, error.type, error.location = message, type, location
    error.args = (message,)
    return error


class _Both(Error):
    """An Error that is also an instance of a second class, whose constructor is not called."""

    def __str__(self):
        return self.message

    def __reduce__(self):
        kind = self.__class__.__bases__[1]
        return _again, (kind, self.message, self.type, self.location)


def _again(kind: type, message: str, type: str, location: str) -> Error:
    return also(kind, message, type=type, location=location)


@functools.cache
def _both(kind: type) -> type:
    if issubclass(Error, kind):
        return Error
    if issubclass(kind, Error):
        return kind
    try:
        return type(kind.__name__, (_Both, kind), {"__module__": __name__, "__doc__": kind.__doc__})
    except TypeError:  # a class that has no subclasses
        return Error
