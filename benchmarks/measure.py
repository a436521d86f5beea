"""Runs settings in turns, each in its own process, and sums their samples up.

All processes live at once and work one at a time, in blocks in the order A B C C B A, so a slow
minute of the machine hits them all. Samples during which threads waited for a core are dropped.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks import backends
from benchmarks.setting import Setting

LONG_BLOCK_S = 10.0  # of those that take longer, one block is enough
MOST_WAITING = 0.05  # share of a sample that its threads may have waited for a core


@dataclass
class Result:
    """What was measured of one setting."""

    setting: Setting
    samples: list = field(default_factory=list)
    figures: dict = field(default_factory=dict)  # whatever else its process told
    error: str = ""

    def clean(self):
        """Step times in ms of the undisturbed samples; at least the least disturbed third."""
        ordered = sorted(self.samples, key=lambda sample: sample[1])
        good = [sample for sample in ordered if sample[1] <= MOST_WAITING]
        third = ordered[: max(1, len(ordered) // 3)]
        return [time_ms for time_ms, _ in (good if len(good) >= len(third) else third)]

    def median_ms(self):
        """Median step time."""
        return statistics.median(self.clean())

    def undisturbed(self):
        """Number of samples below the limit of waiting."""
        return sum(1 for _, share in self.samples if share <= MOST_WAITING)


class Process:
    """The worker of one setting.

    Args:
        setting: what it runs.
        environment: variables beside those that the backend needs.
    """

    def __init__(self, setting, environment=None):
        self.result = Result(setting)
        env = {**os.environ, **backends.environment(setting), **(environment or {})}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", setting.text()],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, do, **arguments):
        """Sends a command and waits for the answer; an empty one if the process has failed."""
        if self.result.error:
            return {}
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        words = self.process.stderr.read().strip().splitlines()
        self.result.error = words[-1] if words else "the process ended"
        return {}

    def note(self, do, **arguments):
        """Asks, and keeps the answer among the figures of the result."""
        self.result.figures |= self.ask(do, **arguments)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the process."""
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()
        self.process.stderr.close()


@contextmanager
def processes(settings, environment=None, loaded=False):
    """Processes of these settings that have made their first call, one after the other.

    Args:
        settings: one for each process.
        environment: variables beside those that the backends need.
        loaded: let each run another network before, so that its libraries are loaded.
    """
    started = []
    try:
        started += [Process(setting, environment) for setting in settings]
        for process in started:  # importing does not disturb what is timed from here on
            process.ask("load" if loaded else "ready")
        for process in started:
            process.note("setup")
        yield started
    finally:
        for process in started:
            process.close()


def take_turns(started, rounds, block_s):
    """Adds samples to the processes' results, of very slow ones in the first round alone."""
    for process in started:
        process.ask("warm")
    slow = set()
    for turn in range(rounds):
        for process in started if turn % 2 == 0 else reversed(started):
            if process in slow:
                continue
            begin = time.perf_counter()
            answer = process.ask("block", seconds=block_s, at_least=2)
            process.result.samples += answer.get("samples", [])
            if time.perf_counter() - begin > LONG_BLOCK_S:
                slow.add(process)


def measure(settings, rounds, block_s):
    """Results of some settings, in the given order."""
    with processes(settings) as started:
        take_turns(started, rounds, block_s)
        return [process.result for process in started]
