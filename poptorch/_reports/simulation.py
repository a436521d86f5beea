"""The run of a schedule in time, without running the program.

Each IPU runs its tasks in the order of rounds. It begins one when what the task reads is there, and
is done with it when what holds the results has room.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from poptorch._reports.schedule import Edge, Schedule, Step, Task
from poptorch.errors import Error


class Costs(Protocol):
    """How long things take, in ``units``."""

    units: str

    def task(self, task: Task) -> float:
        """The computation of one micro-batch."""

    def edge(self, edge: Edge) -> float:
        """The transfer of one micro-batch, at the IPU that takes it."""

    def host_in(self, task: Task) -> float:
        """What the task reads from the host for one micro-batch."""

    def host_out(self, task: Task) -> float:
        """What the task sends to the host for one micro-batch."""

    def step(self, step: Step) -> float:
        """What follows when all micro-batches are done."""


class StageCosts:
    """The costs of ``poptorch.testing.stage_costs``: transfers and updates take no time."""

    units = "relative"

    def __init__(self, costs: dict[int, float]):
        self._costs = costs

    def task(self, task: Task) -> float:
        if task.stage not in self._costs:
            raise ValueError(f"[stage_costs] stage {task.stage} of the program has no cost, got "
                             f"{self._costs}. Give one for each stage.")
        return self._costs[task.stage] * (2 if task.part == "both" else 1)

    def edge(self, edge: Edge) -> float:
        return 0.0

    def host_in(self, task: Task) -> float:
        return 0.0

    def host_out(self, task: Task) -> float:
        return 0.0

    def step(self, step: Step) -> float:
        return 0.0


@dataclass(frozen=True)
class Span:
    """What an IPU does from ``begin`` to ``end``; see ``Timeline.rows`` for ``kind``."""

    ipu: int
    kind: str
    begin: float
    end: float
    task: str | None = None
    micro_batch: int | None = None


class Simulation:
    """One step of one replica.

    Attributes:
        spans: of all IPUs, in the order in which each IPU has them.
        begins: by the name of a task, when it begins each micro-batch.
        ends: when its results are where they are read, in the same units.
    """

    def __init__(self, schedule: Schedule, costs: Costs):
        self.schedule, self._costs = schedule, costs
        self.spans: list[Span] = []
        self.begins: dict[str, list[float]] = {task.name: [] for task in schedule.tasks}
        self.ends: dict[str, list[float]] = {task.name: [] for task in schedule.tasks}
        self._sources: dict[str, list[Edge]] = {task.name: [] for task in schedule.tasks}
        self._targets: dict[str, list[Edge]] = {task.name: [] for task in schedule.tasks}
        for edge in schedule.edges:
            self._sources[edge.target].append(edge)
            self._targets[edge.source].append(edge)
        self._turns = _turns(schedule) if schedule.name == "sequential" else {}
        self._ended = 0
        self._ipus = {task.name: task.ipu for task in schedule.tasks}
        # By IPU: when it has time for what comes next.
        self._free = dict.fromkeys(sorted({*schedule.ipus, *(s.ipu for s in schedule.steps)}), 0.0)
        waiting = [self._worker(ipu) for ipu in schedule.ipus]
        while waiting:
            before = len(self.spans), self._ended
            waiting = [worker for worker in waiting if next(worker, None) is not None]
            if waiting and before == (len(self.spans), self._ended):
                raise Error("[timeline] the tasks of the program wait for each other. Compile the "
                            "model again.")
        for step in sorted(schedule.steps, key=lambda step: step.kind != "all_reduce"):
            self._spend(step.ipu, step.kind, costs.step(step))

    @property
    def span(self) -> float:
        """When the last IPU is done."""
        return max(self._free.values(), default=0.0)

    @property
    def ipus(self) -> list[int]:
        """The IPUs that do something."""
        return list(self._free)

    def _spend(self, ipu: int, kind: str, cost: float, task: str | None = None,
               micro_batch: int | None = None) -> None:
        begin = self._free[ipu]
        self._free[ipu] = begin + cost
        self.spans.append(Span(ipu, kind, begin, begin + cost, task, micro_batch))

    def _worker(self, ipu: int) -> Iterator[bool]:
        """Runs the tasks of an IPU; it yields where it must wait."""
        tasks = [task for task in self.schedule.tasks if task.ipu == ipu]
        count = self.schedule.micro_batches
        for number in range(max(task.offset for task in tasks) + count):
            for task in tasks:
                batch = number - task.offset
                if 0 <= batch < count:
                    yield from self._run(task, batch)

    def _run(self, task: Task, batch: int) -> Iterator[bool]:
        targets = self._targets[task.name]
        needs = [(edge.source, batch) for edge in self._sources[task.name]]
        needs += ((name, batch - lag) for name, lag in self._turns.get(task.name, ())
                  if batch >= lag)
        while any(len(self.ends[name]) <= number for name, number in needs):
            yield True
        begin = max([self._free[task.ipu], *(self.ends[name][number] for name, number in needs)])
        self._free[task.ipu] = begin
        self.begins[task.name].append(begin)
        self._compute(task, batch)
        full = [edge for edge in targets if edge.depth <= batch]
        while any(len(self.begins[edge.target]) <= batch - edge.depth for edge in full):
            yield True
        end = max([self._free[task.ipu],
                   *(self.begins[edge.target][batch - edge.depth] for edge in full)])
        self._free[task.ipu] = end
        self.ends[task.name].append(end)
        self._ended += 1

    def _compute(self, task: Task, batch: int) -> None:
        costs = self._costs
        for edge in self._sources[task.name]:
            cost = costs.edge(edge)
            arrives = edge.memory == "streaming" or self._ipus[edge.source] != task.ipu
            if arrives or cost:
                self._spend(task.ipu, "exchange", cost, task.name, batch)
        if task.bytes_in:
            self._spend(task.ipu, "host", costs.host_in(task), task.name, batch)
        self._spend(task.ipu, "compute", costs.task(task), task.name, batch)
        if task.bytes_out:
            self._spend(task.ipu, "host", costs.host_out(task), task.name, batch)


def _turns(schedule: Schedule) -> dict[str, list[tuple[str, int]]]:
    """What must have ended before a task begins where tasks run in turn: names, and how many
    micro-batches before. Tasks of one phase run at the same time."""
    groups: list[list[Task]] = []
    for task in schedule.tasks:
        if groups and task.phase is not None and groups[-1][0].phase == task.phase:
            groups[-1].append(task)
        else:
            groups.append([task])
    return {task.name: [(one.name, int(number == 0)) for one in groups[number - 1]]
            for number, group in enumerate(groups) for task in group}
