"""Cycles of a program's tasks, transfers and updates."""

from typing import Any

from poptorch._reports.schedule import Edge, Step, Task


class DeviceCosts:
    """The costs of a step in cycles of the target's clock.

    Attributes:
        costs: what ``_C.program_costs`` returns for the text of the schedule.
    """

    units = "cycles"

    def __init__(self, costs: dict[str, Any]):
        self.costs = costs
        self._tasks = {row["name"]: row["cycles"] for row in costs["tasks"]}
        self._ahead = {row["name"]: row["ahead_cycles"] for row in costs["tasks"]}
        self._host = {row["task"]: row for row in costs["host"]}
        self._edges = {(row["source"], row["target"], row["memory"], row["depth"]): row["cycles"]
                       for row in costs["edges"]}
        self._steps = {(row["ipu"], row["kind"]): row["cycles"] for row in costs["steps"]}

    def task(self, task: Task) -> float:
        return self._tasks[task.name]

    def edge(self, edge: Edge) -> float:
        return self._edges[edge.source, edge.target, edge.memory, edge.depth]

    def host_in(self, task: Task) -> float:
        return self._host[task.name]["in_cycles"]

    def host_out(self, task: Task) -> float:
        return self._host[task.name]["out_cycles"]

    def read_ahead(self, task: Task) -> float:
        return self._ahead[task.name]

    def sync(self) -> float:
        return self.costs["sync_cycles"]

    def step(self, step: Step) -> float:
        return self._steps[step.ipu, step.kind]
