"""Single operations and ATen's calls: both in one process, in turns, on warm operands."""

import time

from benchmarks.clocks import waiting_ns
from benchmarks.measure import Result
from benchmarks.part import mean_and_worst

BLOCKS, BLOCK_S = 9, 0.012  # of each side
QUICK_STEP = 11  # with --quick one of so many problems; no multiple of the forms of a layer
SLOW = 0.95  # times as fast as ATen, below which a problem is counted


def seconds(call, count=1):
    """Time of so many calls."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - start


def kernel_s(executable, run, count, ops):
    """Time of the kernels of some ops in so many runs, by the profile of a program."""
    executable.set_profiling(True)
    for _ in range(count):
        run()
    return sum(row["ns"] for row in executable.profile() if row["op"] in ops) / 1e9


def _sample(measure, count):
    """Mean ms of a call, and the share of the time during which threads waited for a core."""
    waited, start = waiting_ns(), time.perf_counter()
    spent = measure(count)
    return spent / count * 1e3, (waiting_ns() - waited) / 1e9 / (time.perf_counter() - start)


def medians_us(sides, once_s, blocks=BLOCKS, block_s=BLOCK_S):
    """Medians of undisturbed blocks of all sides, which take turns, in us.

    Args:
        sides: for each the function that gives the seconds of so many calls.
        once_s: what a call of the slowest takes.
        blocks: of each side.
        block_s: at least one call is made in each.
    """
    count = max(1, int(block_s / once_s))
    results = [Result(None) for _ in sides]
    for _ in range(blocks):
        for result, measure in zip(results, sides):
            result.samples.append(_sample(measure, count))
    return [1e3 * result.median_ms() for result in results]


def measured_rows(plan, problems, name, measured):
    """A group of one row for each problem; with ``--quick`` for some of them."""
    for problem in plan.pace.each(problems[:: QUICK_STEP if plan.quick else 1]):
        plan.pace.tell(name(problem))
        yield [measured(problem)]


def conclusions(rows, key, name):
    """A line for each value of a column: the mean, and how many are slower than ATen."""
    lines = []
    for value in dict.fromkeys(row[key] for row in rows):
        ratios = {name(row): row["ratio"] for row in rows if row[key] == value}
        mean, worst = mean_and_worst(ratios, min)
        slow = sum(ratio < SLOW for ratio in ratios.values())
        lines.append(f"{value}: {mean:.2f} times as fast as ATen (geometric mean of {len(ratios)}; "
                     f"worst {worst}: {ratios[worst]:.2f}); below {SLOW}: {slow}")
    return lines
