"""One backend in a process of its own, told what to do by lines of JSON on standard input."""

import glob
import json
import math
import sys
import time

import torch

from benchmarks import backends, workloads

SAMPLE_S = 0.02  # a sample lasts at least this long, so that reading the clocks costs nothing


def waiting_ns():
    """Time that this process's threads have waited for a core, in nanoseconds."""
    total = 0
    for path in glob.glob("/proc/self/task/*/schedstat"):
        try:
            with open(path) as file:
                total += int(file.read().split()[1])
        except OSError:
            pass  # the thread has ended
    return total


def memory_mb(key):
    """A line of /proc/self/status, such as VmHWM, in MiB."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(key):
                return int(line.split()[1]) / 1024
    return math.nan


def reset_peak():
    """Makes VmHWM start again from the present size."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


class Worker:
    """Holds the call, and answers the parent's commands."""

    def __init__(self, backend, workload, mode):
        self.workload = workload
        self.base_mb = memory_mb("VmRSS")
        start = time.perf_counter()
        self.call = backends.make_call(backend, workload, mode)
        self.call()
        self.first_call_s = time.perf_counter() - start

    def setup(self):
        """Time of building and the first call; memory from here on is that of steady state."""
        for _ in range(2):
            self.call()
        reset_peak()
        return {"first_call_s": self.first_call_s}

    def block(self, seconds, at_least):
        """Runs for some time; gives (step time in ms, share of it spent waiting for a core)."""
        self.call()
        start = time.perf_counter()
        self.call()
        repeat = max(1, math.ceil(SAMPLE_S / (time.perf_counter() - start)))
        samples, begin = [], time.perf_counter()
        while len(samples) < at_least or time.perf_counter() - begin < seconds:
            waited, start = waiting_ns(), time.perf_counter_ns()
            for _ in range(repeat):
                self.call()
            spent_ns = time.perf_counter_ns() - start
            share = (waiting_ns() - waited) / spent_ns
            samples.append((spent_ns / 1e6 / repeat / self.workload.device_iterations, share))
        return {"samples": samples}

    def memory(self):
        """Peak of steady state over what the imports took, in MiB."""
        return {"peak_mb": memory_mb("VmHWM") - self.base_mb}


def main():
    """Serves commands until the input ends; each answer is one line."""
    backend, name, mode = sys.argv[1:]
    answers, sys.stdout = sys.stdout, sys.stderr
    torch.randn(8, 8) @ torch.randn(8, 8)  # the thread pool and MKL belong to the imports
    worker = Worker(backend, workloads.find(name), mode)
    for line in sys.stdin:
        command = json.loads(line)
        result = getattr(worker, command.pop("do"))(**command)
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
