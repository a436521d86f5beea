"""What the kernel knows of this process: time spent, time spent waiting for a core, memory."""

import glob
import math
import resource
import time


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


def cpu_s():
    """Processor time of this process and of those that it started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


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
