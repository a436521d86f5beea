"""Shows that each public name is tested: replaced by one that does nothing, its test fails.

``python -m tests.registry`` tries all option setters and all names of tests/registry/names.py, and
notes what it found in build/registry.jsonl; ``--resume`` leaves out what is noted there as noticed
already. ``python -m tests.registry logDir Block.start`` tries some and notes nothing. The exit
status is 1 when a name could do nothing unnoticed, or a test fails with nothing replaced.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from tqdm import tqdm

from tests.registry.replacements import tests
from tests.registry.trial import Result, Verdict, trials

# Not from tests.helpers: pytest rewrites that module, so it may not be imported before.
ROOT = Path(__file__).resolve().parents[2]

_STATE = ROOT / "build" / "registry.jsonl"


def main() -> int:
    """Tries names, and prints a line for each, and a summary."""
    args = _arguments()
    os.chdir(ROOT)
    known = tests()
    unknown = [name for name in args.names if name not in known]
    if unknown:
        sys.exit(f"[registry] no such names: {', '.join(unknown)}. All of them are in "
                 f"tests/registry/names.py and tests/registry/effects.py.")
    chosen = {name: known[name] for name in args.names or known}
    noted = {} if args.names else _noted(args.state, args.resume, chosen)
    results, begin = list(noted.values()), time.monotonic()
    left = {name: test for name, test in chosen.items() if name not in noted}
    for result in _with_bar(left, args.jobs, len(noted)):
        results.append(result)
        tqdm.write(f"{result.name}: {result.verdict} by {result.test} ({result.seconds:.1f} s)")
        sys.stdout.flush()
        if not args.names:
            with args.state.open("a") as state:
                state.write(json.dumps(result._asdict()) + "\n")
    return _summarize(results, len(noted), time.monotonic() - begin)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.registry", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="names to try; default: all")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)),
                        help="processes at once; default: one for each processor")
    parser.add_argument("--resume", action="store_true",
                        help="leave out the names that an earlier run noted as noticed")
    parser.add_argument("--state", type=Path, default=_STATE,
                        help="where a run over all names notes what it found; default: %(default)s")
    return parser.parse_args()


def _noted(state: Path, resume: bool, chosen: dict[str, str]) -> dict[str, Result]:
    """The names that an earlier run found noticed by the same test; otherwise starts again."""
    state.parent.mkdir(parents=True, exist_ok=True)
    if not resume:
        state.write_text("")
    lines = state.read_text().splitlines() if state.exists() else []
    found = [Result(**json.loads(line)) for line in lines]
    return {result.name: result for result in found if result.verdict == Verdict.NOTICED
            and chosen.get(result.name) == result.test}


def _with_bar(left: dict[str, str], jobs: int, done: int) -> Iterator[Result]:
    """The results of trials, while a bar shows how far they are.

    They run below a process that has no bar: tests may look at bars of their own.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    runner = context.Process(target=_send_trials, args=(left, jobs, receiver, sender))
    runner.start()
    sender.close()
    with tqdm(total=done + len(left), initial=done, unit="name", disable=None) as bar:
        for _ in left:
            result = receiver.recv()
            bar.update()
            yield result
    runner.join()


def _send_trials(left: dict[str, str], jobs: int, receiver: Connection, sender: Connection) -> None:
    receiver.close()
    for result in trials(left, jobs):
        sender.send(result)


def _summarize(results: list[Result], noted: int, seconds: float) -> int:
    counts = Counter(result.verdict for result in results)
    print(f"{len(results)} names in {seconds:.0f} s ({noted} noted earlier): "
          + ", ".join(f"{counts[verdict]} {verdict.lower()}" for verdict in Verdict))
    bad = [result for result in results if result.verdict != Verdict.NOTICED]
    for result in bad:
        print(f"  {result.verdict}: {result.name}, {result.test}")
    return int(bool(bad))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("[registry] stopped. --resume leaves out what was noticed so far.")
