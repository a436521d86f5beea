"""Searches in several processes; one that dies is a finding, and replaced."""

import contextlib
import gc
import multiprocessing
import os
import queue
import time
from collections import Counter
from collections.abc import Iterator

import torch._dynamo
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.fuzz.programs.judge import Finding
from tests.fuzz.programs.search import Tally, search, shown

CHUNK = 40  # programs that a process is given at a time
LIMIT = 600.0  # seconds for one program; what takes longer counts as a process that ended
_COLLECTED = (20000, 20, 100)  # objects, and generations, after which Python's collector runs
_IDLE = -1


def _given(tasks) -> Iterator[tuple]:
    """The chunks that a process is given, for as long as the one that started it lives."""
    while multiprocessing.parent_process().is_alive():
        with contextlib.suppress(queue.Empty):
            yield tasks.get(timeout=5)


def _work(number: int, tasks, results, current, end: float) -> None:
    """Searches one chunk of seeds after the other; ``current`` holds the seed that runs, and
    whether poptorch runs it or eager does."""
    def note(seed, is_ours=False):
        current[:] = seed, is_ours

    # The objects of torch stay: a collector that visits all of them takes a tenth of the time.
    gc.freeze()
    gc.set_threshold(*_COLLECTED)
    for first, count in _given(tasks):
        # Programs share few operations: the cache costs more than it saves. Users have it on.
        torch._dynamo.config.fake_tensor_cache_enabled = first // CHUNK % 4 == 0
        tally = search(range(first, first + count), end - time.time(), note)
        FakeTensorMode.cache_clear()  # torch's, of operations by shape: it only grows
        tally.found = [(seed, program, Finding(finding.kind, shown(seed, program, finding)))
                       for seed, program, finding in tally.found]
        note(_IDLE)
        results.put((number, tally))


def _dead(seed: int, code: int, is_ours: bool) -> Tally:
    """What is to be said of a seed at which the process ended."""
    if not is_ours:
        return Tally(invalid=Counter({f"eager ends the process ({code})": 1}))
    words = f"seed {seed}: the process ended with {code}"
    return Tally(found=[(seed, None, Finding("crash", words))])


class Workers:
    """Processes that search.

    Args:
        jobs: how many.
        seconds: after which they stop.
    """

    def __init__(self, jobs: int, seconds: float):
        # Threads of eager's that wait in a loop take the cores from the other processes.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        self._context = multiprocessing.get_context("spawn")
        self._results = self._context.Queue()
        self._end = time.time() + seconds
        self._workers = [self._started(number) for number in range(jobs)]
        self._since = [(_IDLE, 0.0)] * jobs  # the seed that each runs, and when that was seen first

    def _started(self, number: int):
        tasks, current = self._context.Queue(), self._context.Array("q", [_IDLE, 0])
        process = self._context.Process(
            target=_work, args=(number, tasks, self._results, current, self._end), daemon=True)
        process.start()
        return process, tasks, current

    def search(self, first: int, count: int) -> Iterator[Tally]:
        """Judges programs; yields what came of each chunk as it is done."""
        chunks = iter(range(first, first + count, CHUNK))
        active = {number for number in range(len(self._workers))
                  if self._give(number, chunks, first + count)}
        while active:
            for number, tally in self._ready(active):
                yield tally
                if not self._give(number, chunks, first + count):
                    active.discard(number)

    def _give(self, number: int, chunks, end: int) -> bool:
        start = None if time.time() > self._end else next(chunks, None)
        if start is not None:
            self._workers[number][1].put((start, min(CHUNK, end - start)))
        return start is not None

    def _ready(self, active: set):
        try:
            yield self._results.get(timeout=1)
        except queue.Empty:
            for number in sorted(active):
                process, _, current = self._workers[number]
                seed, is_ours = current[:]
                if process.is_alive():
                    if not self._is_late(number, seed):
                        continue
                    process.kill()
                    process.join()
                if seed == _IDLE:
                    raise RuntimeError("a process that searches did not start") from None
                self._workers[number] = self._started(number)
                yield number, _dead(seed, process.exitcode, bool(is_ours))

    def _is_late(self, number: int, seed: int) -> bool:
        """Whether a process has worked on one program for too long."""
        before, begin = self._since[number]
        if seed == _IDLE or seed != before:
            self._since[number] = seed, time.monotonic()
            return False
        return time.monotonic() - begin > LIMIT

    def end(self) -> None:
        """Ends all processes."""
        for process, _, _ in self._workers:
            process.terminate()
            process.join()
