"""The package's log: a standard logger that writes to stderr, and to a file if asked."""

import logging
import os
import sys
import threading

logger = logging.getLogger("poptorch::python")

TRACE = 5
_OFF = logging.CRITICAL + 10
logging.addLevelName(TRACE, "TRACE")
_LEVELS = {"TRACE": TRACE, "DEBUG": logging.DEBUG, "INFO": logging.INFO,
           "WARN": logging.WARNING, "ERR": logging.ERROR, "OFF": _OFF}
_BY_NUMBER = ["TRACE", "DEBUG", "INFO", "WARN", "ERR"]
_VARIABLE = "POPTORCH_LOG_LEVEL"
_FORMAT = logging.Formatter("[%(asctime)s] [poptorch] [%(levelname)s] %(message)s",
                            datefmt="%H:%M:%S")


class _StderrHandler(logging.StreamHandler):
    """Writes to the present sys.stderr, not to the one at import."""

    def __init__(self):
        logging.Handler.__init__(self)

    @property
    def stream(self):
        return sys.stderr


class _RepeatFilter(logging.Filter):
    """Lets each line through ``limit`` times (None: always); the last time it says so."""

    # So many different lines are counted; programs that log more of them repeat few.
    _LINES = 4096

    def __init__(self, limit: int | None):
        super().__init__()
        self.limit = limit
        self._counts: dict[tuple[int, str], int] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        if self.limit is None:
            return True
        message = record.getMessage()
        with self._lock:
            if len(self._counts) >= self._LINES:
                self._counts.clear()
            count = self._counts.get((record.levelno, message), 0) + 1
            self._counts[record.levelno, message] = count
        if count == self.limit and self.limit > 1:
            record.msg = f"{message} (repeated {count} times; no longer shown, see maxRepeatLogs)"
            record.args = ()
        return count <= self.limit

    def reset(self, limit: int | None) -> None:
        """Sets a limit; counting starts again if it differs."""
        if limit != self.limit:
            self.limit = limit
            self._counts.clear()


_repeats = _RepeatFilter(limit=4)
_files: dict[str, logging.FileHandler] = {}


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
    if not isinstance(level, str) or level not in _LEVELS:
        raise ValueError(f"Unknown log level: {level}. "
                         f"Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN")
    logger.setLevel(_LEVELS[level])


def use_log_options(max_repeat_logs: int | None, log_dir: str) -> None:
    """Applies the options about the log of a model that is wrapped: ``max_repeat_logs`` from now
    on, ``log_dir`` until the process ends. ``"."`` stands for no file."""
    _repeats.reset(max_repeat_logs)
    if log_dir == "." or log_dir in _files:
        return
    os.makedirs(log_dir, exist_ok=True)
    handler = logging.FileHandler(os.path.join(log_dir, "poptorch.log"), encoding="utf-8")
    handler.setFormatter(_FORMAT)
    _files[log_dir] = handler
    logger.addHandler(handler)


def _install() -> None:
    handler = _StderrHandler()
    handler.setFormatter(_FORMAT)
    logger.addHandler(handler)
    logger.addFilter(_repeats)
    logger.propagate = False
    level = os.environ.get(_VARIABLE) or "WARN"
    try:
        setLogLevel(int(level) if level.isdigit() else level)
    except ValueError as error:
        raise ValueError(f"[{_VARIABLE}] {error}") from None


_install()
