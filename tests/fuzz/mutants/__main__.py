"""``python -m tests.fuzz.mutants``: shows that random programs notice mistakes.

Builds the extension with the mistakes of ``csrc/support/mutants.def``, lays out a copy of the
package for each of ``edits.py``, and lets the random programs of ``tests/fuzz/programs`` look for
one after the other; for those in how weights and states of optimizers are kept, the histories of
test_weight_histories.py, test_group_histories.py and test_optimizer_histories.py do that. The exit
status is 1 if one is not found, or if a program that finds one is wrong without it, too.
"""

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed

from tqdm import tqdm

from tests.fuzz.mutants import libraries
from tests.fuzz.mutants.trials import Result, Trials

_MOST = 5000  # programs in which each mutant is to be found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.mutants", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example: python -m tests.fuzz.mutants --only cse_ignores_strides")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these mutants (default: all)")
    parser.add_argument("--count", type=int, default=_MOST,
                        help="programs at most for each (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="the first seed (default: a fresh one)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)),
                        help="mutants at a time (default: one for each processor)")
    parser.add_argument("--list", action="store_true", help="show all mutants and end")
    return parser.parse_args()


def _line(result: Result, width: int) -> str:
    if result.found is None:
        return f"{result.mutant:{width}}  NOT FOUND in {result.programs}  {result.seconds:6.0f} s"
    words = result.found.words.split("\n")[0][:70]
    return (f"{result.mutant:{width}}  {result.programs:5}  {result.seconds:6.0f} s  "
            f"{result.found.kind:6}  seed {result.found.seed}: {words}")


def _summary(results: list[Result], trials: Trials, width: int) -> int:
    print(f"\n{'mutant':{width}}  programs until it was found, seconds, kind of finding")
    for result in sorted(results, key=lambda r: (r.found is None, r.programs)):
        print(_line(result, width))
    missed = [result.mutant for result in results if result.found is None]
    print(f"{len(results) - len(missed)} of {len(results)} found within {trials.count} programs")
    for (_, seed), found in sorted(trials.own.items()):
        print(f"wrong without a mutant: seed {seed}: {found.kind}: {found.words}")
    return 1 if missed or trials.own else 0


def main() -> int:
    """Runs the command; returns the exit status."""
    arguments, known = _arguments(), libraries.all_mutants()
    width = max(map(len, known))
    if arguments.list:
        print("\n".join(f"{name:{width}}  {doc}" for name, doc in known.items()))
        return 0
    unknown = sorted({*(arguments.only or ())} - {*known})
    if unknown:
        sys.exit(f"[mutants] no such mutants: {', '.join(unknown)}. --list shows all of them.")
    libraries.build(arguments.only)
    first = arguments.seed
    if first is None:
        first = int.from_bytes(os.urandom(4), "little") * 1000
    print(f"seeds from {first}", flush=True)
    trials, chosen, results = Trials(first, arguments.count), arguments.only or [*known], []
    with ThreadPoolExecutor(arguments.jobs) as pool, \
            tqdm(total=len(chosen), unit=" mutants", disable=None) as bar:
        for done in as_completed([pool.submit(trials.run, mutant) for mutant in chosen]):
            results.append(result := done.result())
            tqdm.write(_line(result, width))
            sys.stdout.flush()
            bar.update()
    return _summary(results, trials, width)


if __name__ == "__main__":
    sys.exit(main())
