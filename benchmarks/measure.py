"""Runs the backends of one workload in turns, each in its own process, and sums their samples up.

All processes live at once and work one at a time, in blocks in the order A B C C B A, so a slow
minute of the machine hits them all. Samples during which threads waited for a core are dropped.
"""

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field

from benchmarks import backends

MOST_WAITING = 0.05  # share of a sample that its threads may have waited for a core


@dataclass
class Result:
    """What was measured of one backend."""

    workload: str
    mode: str
    backend: str
    first_call_s: float = 0.0
    peak_mb: float = 0.0
    samples: list = field(default_factory=list)
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
    """The worker of one backend."""

    def __init__(self, workload, mode, backend):
        self.result = Result(workload.name, mode, backend)
        env = {**os.environ, **backends.environment(backend)}
        command = [sys.executable, "-m", "benchmarks.worker", backend, workload.name, mode]
        self.process = subprocess.Popen(
            command,
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

    def close(self):
        """Ends the process."""
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()
        self.process.stderr.close()


def measure(workload, mode, names, rounds, block_s):
    """Results of the named backends on one workload, in the given order."""
    processes = []
    try:
        for name in names:  # one after the other: compilation is timed too
            processes.append(Process(workload, mode, name))
            answer = processes[-1].ask("setup")
            processes[-1].result.first_call_s = answer.get("first_call_s", 0.0)
        for turn in range(rounds):
            for process in processes if turn % 2 == 0 else reversed(processes):
                answer = process.ask("block", seconds=block_s, at_least=2)
                process.result.samples += answer.get("samples", [])
        for process in processes:
            process.result.peak_mb = process.ask("memory").get("peak_mb", 0.0)
    finally:
        for process in processes:
            process.close()
    return [process.result for process in processes]
