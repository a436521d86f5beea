"""Runs settings in turns, each in its own process, and sums their samples up.

All processes exist at once and work one at a time, in blocks in the order A B C C B A, so a slow
minute of the machine hits them all. Samples during which threads waited for a core are dropped.
"""

import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from benchmarks import backends, workloads
from benchmarks.pace import Pace
from benchmarks.setting import Setting

LONG_BLOCK_S = 10.0  # of those that take longer, one block is enough
FIRST_CALL_S = 240.0  # who is not ready then is left out
ANSWER_S = 600.0
GOODBYE_S = 5.0
MOST_WAITING = 0.05  # share of a sample that its threads may have waited for a core


@dataclass
class Result:
    """What was measured of one setting."""

    setting: Setting
    samples: list = field(default_factory=list)
    figures: dict = field(default_factory=dict)  # whatever else its process sent
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
        environment: variables in addition to those that the backend needs.
    """

    def __init__(self, setting, environment=None):
        self.result, self.is_late = Result(setting), False
        self.errors = tempfile.TemporaryFile("w+")
        env = {**os.environ, **backends.environment(setting), **(environment or {})}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", setting.text()],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,  # a pipe would be full one day
            text=True,
            start_new_session=True,
        )

    def send(self, do, **arguments):
        """Sends a command."""
        if self.result.error:
            return
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer will be missing, too

    def receive(self, limit_s=ANSWER_S):
        """Waits for the answer; an empty one if the process has failed, or takes longer."""
        if self.result.error:
            return {}
        answers = self.process.stdout
        if not select.select([answers], [], [], limit_s)[0]:
            self.is_late = True
            self.result.error = f"no answer within {limit_s:.0f} s"
            self.kill()
            return {}
        line = answers.readline()
        if line:
            return json.loads(line)
        self.process.wait(timeout=ANSWER_S)
        self.errors.seek(0)
        words = self.errors.read().strip().splitlines()
        self.result.error = words[-1] if words else "the process ended"
        return {}

    def ask(self, do, limit_s=ANSWER_S, **arguments):
        """Sends a command and waits for the answer."""
        self.send(do, **arguments)
        return self.receive(limit_s)

    def note(self, do, limit_s=ANSWER_S, **arguments):
        """Asks, and keeps the answer among the figures of the result."""
        self.result.figures |= self.ask(do, limit_s, **arguments)

    def keep_long_first_call(self):
        """Takes a first call of a slow process for its one sample, as if nothing had waited."""
        seconds = self.result.figures.get("first_call_s", 0.0)
        if seconds > LONG_BLOCK_S:
            steps = workloads.find(self.result.setting.workload).device_iterations
            self.result.samples.append((seconds * 1e3 / steps, 0.0))

    def kill(self):
        """Ends the process and the compilers that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the process."""
        if self.process.stdin:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            self.process.wait(timeout=GOODBYE_S)
        except subprocess.TimeoutExpired:
            self.kill()  # interrupted amid a long call
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


@contextmanager
def processes(settings, environment=None, loaded=False, pace=None, limit_s=FIRST_CALL_S):
    """Processes of these settings that have made their first call, one after the other.

    Args:
        settings: one for each process.
        environment: variables in addition to those that the backends need.
        loaded: let each run another network before, so that its libraries are loaded.
        pace: shows what runs.
        limit_s: the most that a first call may take.
    """
    started, pace = [], pace or Pace()
    try:
        for setting in settings:
            started.append(Process(setting, environment))
        pace.tell("imports")
        for process in started:  # importing does not disturb what is timed from here on
            process.ask("load" if loaded else "ready")
        for process in started:
            pace.tell(f"{process.result.setting.label()}: first call")
            process.note("setup", limit_s)
        yield started
    finally:
        for process in started:
            process.close()


def take_turns(started, rounds, block_s, pace=None):
    """Adds samples to the processes' results, of very slow ones in the first round alone.

    A process that has a sample counts as very slow.
    Ends before a round for which the case has no time left, but not before the first one.
    """
    pace, longest_s = pace or Pace(), 0.0
    slow = {process for process in started if process.result.samples}
    for process in started:
        if process not in slow:
            process.ask("warm")
    for turn in range(rounds):
        begin_round = time.perf_counter()
        if turn > 0 and longest_s > pace.left_s():
            break
        for process in started if turn % 2 == 0 else reversed(started):
            if process in slow:
                continue
            begin = time.perf_counter()
            pace.tell(f"{process.result.setting.label()}: round {turn + 1}")
            answer = process.ask("block", seconds=block_s, at_least=2)
            process.result.samples += answer.get("samples", [])
            if time.perf_counter() - begin > LONG_BLOCK_S:
                slow.add(process)
        longest_s = max(longest_s, time.perf_counter() - begin_round)


def measure(settings, rounds, block_s, pace=None):
    """Results of some settings, in the given order."""
    with processes(settings, pace=pace) as started:
        take_turns(started, rounds, block_s, pace)
        return [process.result for process in started]
