"""What a part of the benchmark is: a question, its columns, and how its rows are measured."""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.pace import Pace
from benchmarks.setting import Setting

LARGE = 4.0  # times the time of other cases


def weight(workload):
    """The share of time of a workload."""
    return LARGE if workload.is_large else 1.0


@dataclass(frozen=True)
class Plan:
    """What the command line selects."""

    workloads: list
    modes: list
    rounds: int
    block_s: float
    peers: bool = False
    quick: bool = False
    backends: tuple = ()  # only these; empty: all that suit
    is_chosen: bool = False  # the workloads were named
    pace: Pace = field(default_factory=Pace)

    def cases(self):
        """Each workload in each mode."""
        return [(workload, mode) for workload in self.workloads for mode in self.modes]

    def timed(self, names=None, without=(), modes=None):
        """Each workload in each mode, at a pace that fills the part's time.

        Args:
            names: only workloads of these names.
            without: not those of these names.
            modes: in place of the chosen ones.
        """
        cases = [
            (workload, mode)
            for workload in self.workloads
            for mode in (self.modes if modes is None else modes)
            if workload.name not in without and (names is None or workload.name in names)
        ]
        return self.pace.each(cases, lambda case: weight(case[0]))

    def named(self, *names):
        """Those of the chosen workloads that have one of these names."""
        return [workload for workload in self.workloads if workload.name in names]


@dataclass(frozen=True)
class Part:
    """A part; ``measure`` gives groups of rows as they are done.

    ``minutes`` is what it may take for all workloads, and with ``--quick``. Rows are replaced by
    those that have the same values of ``keys``.
    """

    name: str
    summary: str
    columns: list
    measure: Callable[[Plan], Iterator[list]]
    conclude: Callable[[list], list] = lambda rows: []  # lines of text on all rows
    minutes: tuple = (5.0, 0.5)
    keys: tuple = ("workload", "mode")


def setting(workload, mode, backend, **others):
    """A setting of a workload."""
    return Setting(workload.name, mode, backend, **others)


def start_row(workload, mode, results=()):
    """A row's first columns, and the first error of its results."""
    errors = [f"{r.setting.backend}: {r.error}" for r in results if r.error]
    return {"workload": workload.name, "mode": mode} | ({"error": errors[0]} if errors else {})


def ratio(a, b):
    """a / b; None where either is missing or nothing."""
    return a / b if a and b else None


def mean_and_worst(values, worst):
    """Geometric mean of ratios, and whose is the worst.

    Args:
        values: a ratio for each name; not empty.
        worst: ``min`` or ``max``, whichever finds the worst.
    """
    return statistics.geometric_mean(values.values()), worst(values, key=values.get)


def mean_line(subject, ratios, comparison, worst):
    """A line of text on ratios: ``{subject} {mean} times as {comparison}``, and whose is the worst.

    Args:
        subject, comparison: what stands before and after.
        ratios, worst: as :func:`mean_and_worst` takes them.
    """
    mean, name = mean_and_worst(ratios, worst)
    return (f"{subject} {mean:.2f} times as {comparison} (geometric mean of {len(ratios)}; "
            f"worst {name} {ratios[name]:.2f})")
