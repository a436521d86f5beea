"""Shows that each public name is tested: replaced by one that does nothing, its test fails.

``python -m tests.registry`` tries all option setters and all names of tests/registry/names.py,
``python -m tests.registry logDir Block.start`` some. The exit status is the number of those whose
test passes although they do nothing.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.registry.replacements import put_in_place_of, tests

# Not from tests.helpers: pytest rewrites that module, so nobody may import it before.
ROOT = Path(__file__).resolve().parents[2]

_LIMIT_S = 120
# It failed; its file could not be imported (both of the next); it waited for what never came.
_NOTICED = (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED,
            pytest.ExitCode.USAGE_ERROR, -signal.SIGALRM)


def passes_without(name: str, test: str) -> bool:
    """Runs the test of a name, in a child process in which the name does nothing."""
    child = os.fork()
    if child == 0:
        signal.alarm(_LIMIT_S)
        os._exit(_run_without(name, test))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != pytest.ExitCode.OK and status not in _NOTICED:
        raise RuntimeError(f"{name}: pytest ended with status {status} on {test}")
    return status == pytest.ExitCode.OK


def _run_without(name: str, test: str) -> int:
    put_in_place_of(name)
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing), \
            contextlib.redirect_stderr(nothing):
        return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", "", test]))


def main(names: list[str]) -> int:
    """Tries some names, or all; prints a line for each."""
    os.chdir(ROOT)
    known = tests()
    survivors = 0
    for name in names or known:
        begin = time.monotonic()
        passes = passes_without(name, known[name])
        survivors += passes
        verdict = "NOT NOTICED by" if passes else "noticed by"
        print(f"{name}: {verdict} {known[name]} ({time.monotonic() - begin:.1f} s)", flush=True)
    print(f"{survivors} of {len(names or known)} names could do nothing unnoticed")
    return survivors


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
