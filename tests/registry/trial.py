"""Tries names: does the test of a name pass, and does it fail once the name does nothing?

The tests of one file are collected once; each trial then runs in a fork of that process, so that no
trial sees what another one did. A name replaced there may be replaced too late, for the file has
been imported and may have taken hold of it. So where the test passes all the same it is tried
again, in a process in which the name is replaced before anything is collected; only this second
trial can say that a name is not noticed.
"""

import enum
import multiprocessing
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

import pytest

from tests.registry.replacements import put_in_place_of

_LIMIT_S = 300
_LATE = 256  # no exit status
_NAMES_AT_ONCE = 16
# It failed; its file could not be imported (both of the next); it waited for what never came.
_FAILED = (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED,
           pytest.ExitCode.USAGE_ERROR, _LATE)


class Verdict(enum.StrEnum):
    """What a trial shows about a name."""

    NOTICED = "noticed"
    NOT_NOTICED = "NOT NOTICED"
    FAILS_ANYWAY = "FAILS ANYWAY"
    CRASHED = "CRASHED"


class Result(NamedTuple):
    """One line of the run: a name, its test, the verdict, and how long that took."""

    name: str
    test: str
    verdict: Verdict
    seconds: float


def trials(tests: dict[str, str], jobs: int) -> Iterator[Result]:
    """Tries each name with its test, in up to `jobs` processes; results come as they are found."""
    files: dict[str, list[str]] = {}
    for name, test in tests.items():
        files.setdefault(test.partition("::")[0], []).append(name)
    groups = [names[begin:begin + _NAMES_AT_ONCE] for names in files.values()
              for begin in range(0, len(names), _NAMES_AT_ONCE)]
    waiting = [(_try_together, {name: tests[name] for name in names}) for names in groups]
    running: dict[Connection, dict[str, str]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            job, names = waiting.pop(0)
            running[_start(job, names)] = dict(names)
        for pipe in wait(list(running)):
            try:
                result = pipe.recv()
            except EOFError:
                left = running.pop(pipe)
                waiting += [(_try_alone, {name: test}) for name, test in left.items()]
                continue
            del running[pipe][result.name]
            yield result


def _start(job: Callable, names: dict[str, str]) -> Connection:
    """Runs a job in a child process; what it tells can be received from the connection."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    # Forked twice: no process has to wait for the grandchild, the end of its pipe says enough.
    child = os.fork()
    if child == 0:
        try:
            if os.fork() == 0:
                receiver.close()
                job(names, sender.send)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    sender.close()
    return receiver


def _try_together(names: dict[str, str], tell: Callable[[Result], None]) -> None:
    """Tries names whose tests are in one file; reports those that are noticed."""
    _pytest([*dict.fromkeys(names.values())], plugins=[_Forks(names, tell)])


def _try_alone(names: dict[str, str], tell: Callable[[Result], None]) -> None:
    """Tries one name, replaced before anything is collected; always reports it."""
    (name, test), = names.items()
    begin = time.monotonic()
    verdict = _verdict_alone(name, test)
    tell(Result(name, test, verdict, time.monotonic() - begin))


def _verdict_alone(name: str, test: str) -> Verdict:
    def without() -> int:
        put_in_place_of(name)
        return _pytest([test])

    status = _in_child(without)
    if status == pytest.ExitCode.OK:
        return Verdict.NOT_NOTICED
    if status not in _FAILED:
        return Verdict.CRASHED
    unbroken = _in_child(lambda: _pytest([test]))
    return Verdict.NOTICED if unbroken == pytest.ExitCode.OK else Verdict.FAILS_ANYWAY


class _Forks:
    """A plugin for pytest: instead of running what it collected, it tries names."""

    def __init__(self, names: dict[str, str], tell: Callable[[Result], None]):
        self._names, self._tell = names, tell

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Tells of each name whose test passes, and fails when the name does nothing."""
        passes = {}
        for name, test in self._names.items():
            begin = time.monotonic()
            items = [item for item in session.items
                     if item.nodeid == test or item.nodeid.startswith(test + "[")]
            if test not in passes:
                passes[test] = _run(session, items) == pytest.ExitCode.OK
            if passes[test] and _run(session, items, name) in _FAILED:
                self._tell(Result(name, test, Verdict.NOTICED, time.monotonic() - begin))
        return True


def _run(session: pytest.Session, items: list[pytest.Item], name: str | None = None) -> int:
    """Runs collected tests in a child, up to the first that fails; there the name does nothing."""

    def run() -> int:
        if name is not None:
            put_in_place_of(name)
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return pytest.ExitCode.TESTS_FAILED
        return pytest.ExitCode.OK if items else pytest.ExitCode.NO_TESTS_COLLECTED

    return _in_child(run)


def _in_child(action: Callable[[], int]) -> int:
    child = os.fork()
    if child == 0:
        status = pytest.ExitCode.INTERNAL_ERROR
        try:
            status = action()
        finally:
            os._exit(int(status))
    process = os.pidfd_open(child)
    # Counted, not read off a clock: while the whole run is stopped, nothing waits for anything.
    is_late = not any(select.select([process], [], [], 1.0)[0] for _ in range(_LIMIT_S))
    if is_late:
        os.kill(child, signal.SIGKILL)
    os.close(process)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return _LATE if is_late else status


def _pytest(tests: list[str], plugins: list = ()) -> int:
    nothing = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):
        os.dup2(nothing, output)
    os.close(nothing)
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", "", *tests],
                           plugins=list(plugins)))
