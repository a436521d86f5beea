"""What a part of the benchmark is: a question, its columns, and how its rows are measured."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.setting import Setting


@dataclass(frozen=True)
class Plan:
    """What the command line asks for."""

    workloads: list
    modes: list
    rounds: int
    block_s: float
    peers: bool = False
    quick: bool = False
    backends: tuple = ()  # only these; empty: all that suit

    def cases(self):
        """Each workload in each mode."""
        return [(workload, mode) for workload in self.workloads for mode in self.modes]

    def named(self, *names):
        """Those of the chosen workloads that have one of these names."""
        return [workload for workload in self.workloads if workload.name in names]


@dataclass(frozen=True)
class Part:
    """A part; ``measure`` gives groups of rows as they are done."""

    name: str
    summary: str
    columns: list
    measure: Callable[[Plan], Iterator[list]]
    conclude: Callable[[list], list] = lambda rows: []  # lines of text on all rows


def setting(workload, mode, backend, **others):
    """A setting of a workload."""
    return Setting(workload.name, mode, backend, **others)


def start_row(workload, mode, results=()):
    """A row's first columns, and the first error of the results that it is made of."""
    errors = [f"{r.setting.backend}: {r.error}" for r in results if r.error]
    return {"workload": workload.name, "mode": mode} | ({"error": errors[0]} if errors else {})


def ratio(a, b):
    """a / b; None where either is missing or nothing."""
    return a / b if a and b else None
