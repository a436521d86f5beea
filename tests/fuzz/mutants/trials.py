"""Lets random programs, or histories, look for mutants."""

import json
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from tests.fuzz.mutants.libraries import environment_of, folder_of, judge_of
from tests.package_links import ROOT

# poptorch first: it must be that of the mutant.
_TEST = """
import sys, poptorch, pytest
assert poptorch.__file__.startswith(sys.argv[1]), poptorch.__file__
sys.exit(pytest.main(["-x", "-q", "-n0", "-p", "no:cacheprovider", sys.argv[2]]))
"""


class Found(NamedTuple):
    """What is wrong with a program.

    Attributes:
        seed: of the program.
        kind: ``wrong``, ``broken``, or ``crash`` where the process ended.
        words: about it.
    """

    seed: int
    kind: str
    words: str


class Result(NamedTuple):
    """What came of one mutant.

    Attributes:
        mutant: its name.
        programs: judged until it was found, or all.
        seconds: that took.
        found: the finding; None if there was none.
    """

    mutant: str
    programs: int
    seconds: float
    found: Found | None


class Trials:
    """Tries mutants on the programs of the same seeds.

    Args:
        first: the first seed.
        count: how many programs each mutant is given at most.

    Attributes:
        own: what the build without a mutant computes wrong, by judge and seed: it says
            nothing about mutants.
    """

    def __init__(self, first: int, count: int):
        self.first, self.count = first, count
        self.own: dict[tuple[str, int], Found] = {}
        self._in_order: set[tuple[str, int]] = set()
        self._lock = threading.Lock()

    def run(self, mutant: str) -> Result:
        """Judges programs until one is wrong because of the mutant."""
        begin, seed, end = time.monotonic(), self.first, self.first + self.count
        found, judge = None, judge_of(mutant)
        if "::" in judge:
            return Result(mutant, 1, time.monotonic() - begin, self._by_test(mutant, judge))
        while seed < end and found is None:
            found = _search(mutant, judge, seed, end - seed)
            if found is None:
                break
            seed = found.seed + 1
            if self._is_own(judge, found.seed):
                found = None
        programs = seed - self.first if found else self.count
        return Result(mutant, programs, time.monotonic() - begin, found)

    def _by_test(self, mutant: str, test: str) -> Found | None:
        """Whether a test fails because of the mutant."""
        if _fails("", test):
            self.own[test, 0] = Found(0, "wrong", test)
            return None
        return Found(0, "wrong", test) if _fails(mutant, test) else None

    def _is_own(self, judge: str, seed: int) -> bool:
        """Whether the program or history is wrong without a mutant, too."""
        key = judge, seed
        with self._lock:
            if key not in self.own and key not in self._in_order:
                found = _search("", judge, seed, 1)
                if found is None:
                    self._in_order.add(key)
                else:
                    self.own[key] = found
            return key in self.own


def _fails(mutant: str, test: str) -> bool:
    """Whether a test fails with the package of a mutant."""
    folder = folder_of(mutant, test)
    process = subprocess.run([sys.executable, "-c", _TEST, str(folder), str(ROOT / test)],
                             cwd=folder, env=environment_of(mutant, test), text=True,
                             capture_output=True)
    if process.returncode > 1:
        raise SystemExit(f"[mutants] {test} does not start with {mutant or 'no mutant'}:\n"
                         f"{process.stdout}{process.stderr}")
    return process.returncode == 1


def _search(mutant: str, judge: str, first: int, count: int) -> Found | None:
    """The first finding among the programs, or histories, of some seeds. Programs with which eager
    itself ends the process say nothing."""
    folder = folder_of(mutant, judge)
    command = [sys.executable, "-m", "tests.fuzz.mutants.trial", judge, str(first), str(count)]
    # -m puts the working directory first: it must not be the checkout.
    process = subprocess.Popen(command, cwd=folder, env=environment_of(mutant, judge), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    errors: list[str] = []
    reader = threading.Thread(target=lambda: errors.append(process.stderr.read()), daemon=True)
    reader.start()
    seed, is_ours, finding = None, False, None
    for line in process.stdout:
        note = json.loads(line)
        if "package" in note and not note["package"].startswith(str(folder)):
            raise SystemExit(f"[mutants] {note['package']} was imported, not {folder}.")
        seed, is_ours = note.get("seed", seed), note.get("is_ours", is_ours)
        finding = note if "kind" in note else None
    status = process.wait()
    reader.join()
    if finding is not None:
        return Found(seed, finding["kind"], finding["words"])
    if status == 0:
        return None
    if seed is None:
        raise SystemExit(f"[mutants] {mutant or 'the build without mutants'} does not start:\n"
                         f"{''.join(errors)}")
    if not is_ours:
        return _search(mutant, judge, seed + 1, first + count - seed - 1)
    return Found(seed, "crash", f"the process ended with {status}")
