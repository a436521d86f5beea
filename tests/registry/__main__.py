"""Shows that each option setter is tested: replaced by one that does nothing, its test fails.

``python -m tests.registry`` tries all setters, ``python -m tests.registry logDir modelName`` some.
The exit status is the number of setters whose test passes although the setter does nothing.
"""

import contextlib
import os
import sys
import time
from pathlib import Path

import pytest

from tests.registry.effects import setters, test_of

# Not from tests.helpers: pytest rewrites that module, so nobody may import it before.
ROOT = Path(__file__).resolve().parents[2]


def passes_without(name: str) -> bool:
    """Runs the test of a setter, in a child process in which the setter does nothing."""
    child = os.fork()
    if child == 0:
        os._exit(_run_without(name))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{name}: pytest ended with status {status} on {test_of(name)}")
    return status == pytest.ExitCode.OK


def _run_without(name: str) -> int:
    kind, method = setters()[name]
    setattr(kind, method, lambda self, *args, **kwargs: self)
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing), \
            contextlib.redirect_stderr(nothing):
        return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", "", test_of(name)]))


def main(names: list[str]) -> int:
    """Tries some setters, or all; prints a line for each."""
    os.chdir(ROOT)
    survivors = 0
    for name in names or setters():
        begin = time.monotonic()
        passes = passes_without(name)
        survivors += passes
        verdict = "NOT NOTICED by" if passes else "noticed by"
        print(f"{name}: {verdict} {test_of(name)} ({time.monotonic() - begin:.1f} s)", flush=True)
    print(f"{survivors} of {len(names or setters())} setters could do nothing unnoticed")
    return survivors


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
