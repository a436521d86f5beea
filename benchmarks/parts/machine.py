"""What the machine can do: the two slopes of the roofline, by one thread and by all."""

import time

import torch

from benchmarks.clocks import waiting_ns
from benchmarks.measure import MOST_WAITING
from benchmarks.part import Part
from benchmarks.table import Column

SIZE = 2048  # of the square matrices
COPY_MB = 256
TRIES = 12

COLUMNS = [
    Column("workload", "threads", "", -8),
    Column("gflops", "sgemm GF/s", ".0f"),
    Column("copy", "copy GB/s", ".1f"),
]


def _best_s(function):
    """Least time of some undisturbed runs."""
    times = []
    function()
    for _ in range(TRIES):
        waited, start = waiting_ns(), time.perf_counter()
        function()
        seconds = time.perf_counter() - start
        share = (waiting_ns() - waited) / 1e9 / seconds
        times.append((share > MOST_WAITING, seconds))
    return min(times)[1]


def _measure(plan):
    before = torch.get_num_threads()
    a, b, c = (torch.randn(SIZE, SIZE) for _ in range(3))
    source, target = (torch.zeros(COPY_MB * 2**18) for _ in range(2))
    for threads in plan.pace.each(sorted({1, before})):
        torch.set_num_threads(threads)
        gemm_s = _best_s(lambda: torch.mm(a, b, out=c))
        copy_s = _best_s(lambda: target.copy_(source))
        row = {"workload": str(threads), "gflops": 2 * SIZE**3 / gemm_s / 1e9}
        yield [row | {"copy": 2 * COPY_MB * 2**20 / copy_s / 1e9}]
    torch.set_num_threads(before)


PART = Part("machine", "peak rates of the machine", COLUMNS, _measure, minutes=(0.2, 0.2))
