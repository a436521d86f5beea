"""What the kernel counts of this process: time spent, time spent waiting for a core, memory."""

import glob
import math
import os
import resource
from dataclasses import dataclass

STOLEN = 8  # the field of the first line of /proc/stat, its name included


def stolen_ns(path="/proc/stat"):
    """Time that the host of a virtual machine has given its cores to others, in nanoseconds."""
    try:
        with open(path) as file:
            ticks = int(file.readline().split()[STOLEN])
    except (OSError, IndexError):
        return 0  # the kernel does not say
    return ticks * 10**9 // os.sysconf("SC_CLK_TCK")


def waiting_ns():
    """Time that this process's threads have waited for a core, in nanoseconds.

    The kernel does not count what a host has stolen from a running thread: it is added, of all
    cores, in ticks of 10 ms.
    """
    total = stolen_ns()
    for path in glob.glob("/proc/self/task/*/schedstat"):
        try:
            with open(path) as file:
                total += int(file.read().split()[1])
        except OSError:
            pass  # the thread has ended
    return total


@dataclass(frozen=True)
class Cpu:
    """Processor time in seconds; the kernel separates its two parts by samples of some ms."""

    user_s: float
    system_s: float  # in the kernel: clearing fresh memory, most of all

    def __sub__(self, other):
        return Cpu(self.user_s - other.user_s, self.system_s - other.system_s)


def cpu():
    """Processor time of this process and of those that it started and that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Cpu(sum(x.ru_utime for x in both), sum(x.ru_stime for x in both))


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
