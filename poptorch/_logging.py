"""The package's log: a standard logger that writes to stderr."""

import logging
import os
import sys

logger = logging.getLogger("poptorch::python")

TRACE = 5
_OFF = logging.CRITICAL + 10
logging.addLevelName(TRACE, "TRACE")
_LEVELS = {"TRACE": TRACE, "DEBUG": logging.DEBUG, "INFO": logging.INFO,
           "WARN": logging.WARNING, "ERR": logging.ERROR, "OFF": _OFF}
_BY_NUMBER = ["TRACE", "DEBUG", "INFO", "WARN", "ERR"]


class _StderrHandler(logging.StreamHandler):
    """Writes to what sys.stderr is now, not to what it was at import."""

    def __init__(self):
        logging.Handler.__init__(self)

    @property
    def stream(self):
        return sys.stderr


def setLogLevel(level: int | str) -> None:
    """Sets which lines the log shows, on stderr. ``POPTORCH_LOG_LEVEL`` sets it at import.

    Args:
        level: ``"TRACE"``, ``"DEBUG"``, ``"INFO"``, ``"WARN"`` (the default), ``"ERR"`` or
            ``"OFF"``; or 0 to 4 for TRACE to ERR.

    Raises:
        ValueError: The level is not one of these.

    Example:
        >>> import poptorch
        >>> poptorch.setLogLevel("WARN")
    """
    if isinstance(level, int) and not isinstance(level, bool):
        if not 0 <= level < len(_BY_NUMBER):
            raise ValueError(f"Invalid log level integer {level}. "
                             f"Use 0 (TRACE) to {len(_BY_NUMBER) - 1} (ERR).")
        level = _BY_NUMBER[level]
    if level not in _LEVELS:
        raise ValueError(f"Unknown log level: {level}. "
                         f"Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN")
    logger.setLevel(_LEVELS[level])


def _install() -> None:
    handler = _StderrHandler()
    handler.setFormatter(logging.Formatter("[%(asctime)s] [poptorch] [%(levelname)s] %(message)s",
                                           datefmt="%H:%M:%S"))
    logger.addHandler(handler)
    logger.propagate = False
    setLogLevel(os.environ.get("POPTORCH_LOG_LEVEL", "WARN"))


_install()
