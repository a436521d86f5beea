"""``python -m tests.fuzz.mutants.trial FIRST COUNT``: judges programs until one is wrong.

Prints a JSON line before each seed, and one for what is found. Started by ``__main__`` with the
environment of a mutant, so that what crashes here ends this process alone.
"""

import faulthandler
import json
import sys

import poptorch
from tests.fuzz.programs.search import search

# For one program: it takes less than a second, unless the mistake makes it run for ever.
_SECONDS = 300


def main() -> None:
    """Runs the command."""
    first, count = map(int, sys.argv[1:3])
    print(json.dumps({"package": poptorch.__file__}), flush=True)
    for seed in range(first, first + count):
        print(json.dumps({"seed": seed}), flush=True)
        faulthandler.dump_traceback_later(_SECONDS, exit=True)
        found = search([seed]).found
        faulthandler.cancel_dump_traceback_later()
        if found:
            _, _, finding = found[0]
            print(json.dumps({"kind": finding.kind, "words": finding.words}), flush=True)
            return


if __name__ == "__main__":
    main()
