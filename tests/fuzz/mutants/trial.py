"""``python -m tests.fuzz.mutants.trial JUDGE FIRST COUNT``: judges programs, or histories, until
one is wrong. A seed is that of one program, or of some histories.

Prints a JSON line before each seed and when poptorch begins and ends with it, and one for what is
found. Started by ``__main__`` with the environment of a mutant, so that what crashes here ends this
process alone.
"""

import contextlib
import faulthandler
import json
import sys

import hypothesis
from hypothesis.stateful import run_state_machine_as_test

import poptorch
from tests.fuzz.histories import (
    test_group_histories,
    test_optimizer_histories,
    test_weight_histories,
)
from tests.fuzz.judge import budget
from tests.fuzz.programs.search import search

# For each seed, as the first history that hypothesis tries is an empty one.
_HISTORIES = 20
# For one program: it takes less than a second, unless the mistake makes it run for ever.
_SECONDS = 300


def _by_programs(seed: int, note) -> dict | None:
    found = search([seed], note=note).found
    return {"kind": found[0][2].kind, "words": found[0][2].words} if found else None


def _by_histories(test):
    def judge(seed: int, note) -> dict | None:
        note(seed, True)
        hypothesis.seed(seed)(test.Histories)
        settings = budget(_HISTORIES, stateful_step_count=test.STEPS)
        try:
            run_state_machine_as_test(test.Histories, settings=settings)
        except Exception as error:
            return {"kind": "wrong", "words": f"{type(error).__name__}: {error}"}
        return None

    return judge


_JUDGES = {"programs": _by_programs, "weights": _by_histories(test_weight_histories),
           "groups": _by_histories(test_group_histories),
           "optimizers": _by_histories(test_optimizer_histories)}


def main() -> None:
    """Runs the command."""
    judge = _JUDGES[sys.argv[1]]
    first, count = map(int, sys.argv[2:4])
    out = sys.stdout

    def note(seed: int, is_ours: bool = False) -> None:
        print(json.dumps({"seed": seed, "is_ours": is_ours}), file=out, flush=True)

    print(json.dumps({"package": poptorch.__file__}), flush=True)
    for seed in range(first, first + count):
        faulthandler.dump_traceback_later(_SECONDS, exit=True)
        with contextlib.redirect_stdout(sys.stderr):
            finding = judge(seed, note)
        faulthandler.cancel_dump_traceback_later()
        if finding is not None:
            print(json.dumps(finding), flush=True)
            return


if __name__ == "__main__":
    main()
