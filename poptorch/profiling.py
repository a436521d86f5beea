"""Traces of what a program does on the host: channels of tracepoints, and the executor's steps.

Recording is off until :func:`record` is entered, an executor is built with
``Options.enableProfiling``, or the environment requests it: ``PVTI_OPTIONS`` holding
``{"enable": "true", "directory": "<folder>"}`` records the whole process into
``<folder>/poptorch_<process>.json``.

Example:
    >>> import pathlib, poptorch, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "trace.json"
    >>> channel = poptorch.profiling.Channel("data")
    >>> with poptorch.profiling.record(path), channel.tracepoint("load"):
    ...     pass
    >>> "load" in path.read_text()
    True
"""

import contextlib
import functools
import glob
import inspect
import json
import os
import threading
import time
from collections.abc import Iterator
from multiprocessing import util
from pathlib import Path

from poptorch._base.environment import json_object

_VARIABLE = "PVTI_OPTIONS"


class Recording:
    """Events of one process and its children, written as a Chrome trace.

    A child process (a loader's worker, say) adds its events to a file next to the trace as they
    come, because it may end without notice; :meth:`write` reads them.

    Args:
        path: of the trace.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path).absolute()  # as the process may go to another folder
        self._process = os.getpid()
        self._events: list[dict] = []

    def add(self, name: str, category: str, begin_ns: int, end_ns: int) -> None:
        """Adds a span; times are those of ``time.monotonic_ns``."""
        process = os.getpid()
        event = {"name": name, "cat": category, "ph": "X", "ts": begin_ns / 1000,
                 "dur": (end_ns - begin_ns) / 1000, "pid": process,
                 "tid": threading.get_native_id()}
        if process == self._process:
            self._events.append(event)
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._part(process), "a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def _part(self, process: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{process}.part")

    def write_at_exit(self) -> None:
        """Writes the trace when the process ends, also one that multiprocessing has started."""
        util.Finalize(None, self.write, exitpriority=0)

    def write(self) -> None:
        """Writes all events so far; the trace is whole at any time."""
        if os.getpid() != self._process:
            return
        for part in sorted(self.path.parent.glob(f"{glob.escape(self.path.name)}.*.part")):
            lines = part.read_text(encoding="utf-8").splitlines()
            self._events += [json.loads(line) for line in lines]
            part.unlink()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_name(self.path.name + ".new")
        unfinished.write_text(json.dumps({"traceEvents": self._events, "displayTimeUnit": "ms"}),
                              encoding="utf-8")
        unfinished.replace(self.path)


_recordings: list[Recording] = []


def is_recording() -> bool:
    """Whether any recording is on.

    Example:
        >>> from poptorch import profiling
        >>> profiling.is_recording()
        False
    """
    return bool(_recordings)


def add_span(name: str, category: str, begin_ns: int, end_ns: int) -> None:
    """Adds a span to all recordings that are on.

    Args:
        name: what was done.
        category: of what kind, for instance the name of a channel.
        begin_ns: begin by ``time.monotonic_ns``.
        end_ns: end by the same clock.
    """
    for recording in _recordings:
        recording.add(name, category, begin_ns, end_ns)


@contextlib.contextmanager
def span(name: str, category: str) -> Iterator[None]:
    """Records what is done within, also when it raises.

    Args:
        name: what is done.
        category: of what kind.
    """
    if not _recordings:
        yield
        return
    begin = time.monotonic_ns()
    try:
        yield
    finally:
        add_span(name, category, begin, time.monotonic_ns())


@contextlib.contextmanager
def record(path: str | os.PathLike[str]) -> Iterator[Recording]:
    """Records tracepoints, compile steps and runs within into a file.

    Open the file in chrome://tracing or https://ui.perfetto.dev.

    Args:
        path: of the JSON file; its folder is made if need be.

    Example:
        >>> import json, pathlib, poptorch, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "trace.json"
        >>> with poptorch.profiling.record(path):
        ...     with poptorch.profiling.Channel("MyApp").tracepoint("load"):
        ...         pass
        >>> [event["name"] for event in json.loads(path.read_text())["traceEvents"]]
        ['load']
    """
    recording = Recording(path)
    try:
        with recorded_by(recording):
            yield recording
    finally:
        recording.write()


@contextlib.contextmanager
def recorded_by(recording: Recording) -> Iterator[None]:
    """Lets a recording take what is done within; it is not written.

    Args:
        recording: the recording.
    """
    _recordings.append(recording)
    try:
        yield
    finally:
        _recordings.remove(recording)


class Channel:
    """Names a group of tracepoints. Without a recording they cost next to nothing.

    Args:
        name: category of its events in the trace.

    Raises:
        TypeError: The name is not a str.

    Example:
        >>> import poptorch
        >>> channel = poptorch.profiling.Channel("MyApp")
        >>> with channel.tracepoint("add"):
        ...     1 + 1
        2
    """

    def __init__(self, name: str):
        if not isinstance(name, str):
            raise TypeError(f"[profiling.Channel] name must be a str, got {type(name).__name__}.")
        self.name = name

    def tracepoint(self, name: str) -> contextlib.AbstractContextManager[None]:
        """A context manager that records what is done within.

        Args:
            name: of the event.

        Raises:
            TypeError: The name is not a str.

        Example:
            >>> import poptorch
            >>> with poptorch.profiling.Channel("app").tracepoint("sum"):
            ...     sum(range(10))
            45
        """
        if not isinstance(name, str):
            raise TypeError(f"[profiling.Channel] tracepoint: name must be a str, got "
                            f"{type(name).__name__}.")
        return span(name, self.name)

    def instrument(self, obj: object, *methods: str) -> None:
        """Records every call of some methods, under ``<class>.<method>``.

        Args:
            obj: the object whose methods are replaced by recording ones.
            methods: their names.

        Raises:
            AttributeError: There is no such method.

        Example:
            >>> import poptorch
            >>> class Reader:
            ...     def read(self):
            ...         return 3
            >>> reader = Reader()
            >>> poptorch.profiling.Channel("MyApp").instrument(reader, "read")
            >>> reader.read()
            3
        """
        kind = obj if isinstance(obj, type) else type(obj)
        for method in methods:
            if not callable(getattr(obj, method, None)):
                raise AttributeError(f"[profiling.Channel] instrument: {kind.__name__} has no "
                                     f"method {method!r}.")
        for method in methods:
            found, made = getattr(obj, method), lambda call: call
            if obj is kind:
                held = inspect.getattr_static(obj, method)
                if isinstance(held, (staticmethod, classmethod)):
                    found, made = held.__func__, type(held)
            setattr(obj, method, made(self._recording(found, f"{kind.__name__}.{method}")))

    def _recording(self, function, name: str):
        @functools.wraps(function)
        def call(*args, **kwargs):
            with span(name, self.name):
                return function(*args, **kwargs)

        return call


def _record_process() -> None:
    text = os.environ.get(_VARIABLE)
    if not text:
        return
    settings = json_object(_VARIABLE, text, '{"enable": "true", "directory": "traces"}')
    if str(settings.get("enable", "false")).lower() != "true":
        return
    folder = Path(settings.get("directory", os.curdir))
    recording = Recording(folder.absolute() / f"poptorch_{os.getpid()}.json")
    recording.path.parent.mkdir(parents=True, exist_ok=True)
    _recordings.append(recording)
    recording.write_at_exit()


_record_process()
