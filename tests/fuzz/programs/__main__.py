"""``python -m tests.fuzz.programs``: searches for programs that compute something wrong."""

import argparse
import os
import sys

from tqdm import tqdm

from tests.fuzz.programs.draw import draw
from tests.fuzz.programs.judge import Invalid
from tests.fuzz.programs.search import Tally, judged, shown
from tests.fuzz.programs.shrink import shrunk
from tests.fuzz.programs.workers import CHUNK, Workers

_SHOWN = 12  # findings that are shrunk


def _arguments():
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.programs", description=__doc__,
        epilog="Example: python -m tests.fuzz.programs --seconds 600 --jobs 2")
    parser.add_argument("--count", type=int, default=10**9,
                        help="programs to draw (default: as time allows)")
    parser.add_argument("--seconds", type=float, default=1e9, help="time to search")
    parser.add_argument("--seed", type=int, help="the first seed (default: a fresh one)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--replay", type=int, metavar="SEED", help="judge one program, and show it")
    parser.add_argument("--stop", action="store_true", help="stop at the first finding")
    parser.add_argument("--no-shrink", action="store_true", help="show programs as they are drawn")
    parser.add_argument("--shrink-seconds", type=float, default=60.0, help="for each program")
    return parser.parse_args()


def _show_shrunk(seed: int, program, finding, seconds: float) -> None:
    small = shrunk(program, finding.kind, seconds)
    print("\nshrunk:", shown(seed, small, judged(small) or finding), sep="\n", flush=True)


def _replay(seed: int, arguments) -> int:
    program = draw(seed)
    if program is None:
        print(f"seed {seed} gives no program")
        return 0
    print(program, flush=True)
    try:
        finding = judged(program)
    except Invalid as reason:
        print(f"not judged: {reason}")
        return 0
    if finding is None:
        print("in order")
        return 0
    print(shown(seed, program, finding))
    if not arguments.no_shrink:
        _show_shrunk(seed, program, finding, arguments.shrink_seconds)
    return 1


def _searched(arguments, first: int) -> Tally:
    tally = Tally()
    workers = Workers(arguments.jobs, arguments.seconds)
    shown_total = arguments.count if arguments.count < 10**9 else None
    often = 0.1 if sys.stderr.isatty() else 60.0
    with tqdm(total=shown_total, unit=" programs", mininterval=often) as bar:
        for part in workers.search(first, arguments.count):
            tally.add(part)
            bar.set_postfix(judged=tally.judged, wrong=len(tally.found), refresh=False)
            bar.update(CHUNK)
            for _, _, finding in part.found:
                tqdm.write(f"{finding.words}\n")
            if part.found and arguments.stop:
                break
    workers.end()
    return tally


def main() -> int:
    """Runs the command; returns the exit status."""
    arguments = _arguments()
    if arguments.replay is not None:
        return _replay(arguments.replay, arguments)
    first = arguments.seed
    if first is None:
        first = int.from_bytes(os.urandom(4), "little") * 1000
    print(f"seeds from {first}; --replay SEED judges one program again", flush=True)
    tally = _searched(arguments, first)
    if not arguments.no_shrink:
        for seed, program, finding in tally.found[:_SHOWN]:
            if program is not None:
                _show_shrunk(seed, program, finding, arguments.shrink_seconds)
    print(tally)
    return 1 if tally.found else 0


if __name__ == "__main__":
    sys.exit(main())
