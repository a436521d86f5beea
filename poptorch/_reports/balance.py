"""Which block a pipeline would better have in a neighbouring stage."""

from dataclasses import dataclass

from poptorch._reports.device.costs import DeviceCosts
from poptorch._reports.schedule import Schedule, Task
from poptorch._reports.simulation import Simulation

_LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Move:
    """A block that is better in another stage, and the part of a step's time that this saves."""

    block: str
    stage: int
    ipu: int
    gain: float

    def __str__(self) -> str:
        return (f'Moving block "{self.block}" to stage {self.stage} (IPU {self.ipu}) would shorten '
                f"a step by {self.gain:.1%}.")


class _Moved(DeviceCosts):
    """The costs after a move."""

    def __init__(self, costs: DeviceCosts, block: dict, source: int, target: int):
        super().__init__(costs.costs)
        self._block, self._source, self._target = block, source, target

    def task(self, task: Task) -> float:
        is_whole = task.part == "both" or task.recomputed_flops
        parts = ("forward", "backward") if is_whole else (task.part,)
        change = sum(self._block[part] for part in parts)
        sign = (task.stage == self._target) - (task.stage == self._source)
        return max(0.0, super().task(task) + sign * change)


def best_move(shares: list[dict], blocks: list[dict], schedule: Schedule,
              costs: DeviceCosts) -> Move | None:
    """The move of the last block of a stage to the next one, or of the first block to the stage
    before, that saves most; None where none saves a hundredth.

    Args:
        shares: from ``Executable.shares``, a stage each, in order.
        blocks: from ``_C.block_costs``.
        schedule: of the program. One that is sequential gains nothing by a move.
        costs: of the program.
    """
    stages = {task.stage for task in schedule.tasks}
    if len(stages) < 2 or schedule.name == "sequential":
        return None
    by_name = {block["name"]: block for block in blocks}
    order = list(by_name)
    before = Simulation(schedule, costs).span
    best = None
    for source, target in _neighbours(shares, stages, schedule, costs):
        held = [name for name in order if name in source["blocks"]]
        if len(held) < 2:
            continue
        name = held[-1 if target["stage"] > source["stage"] else 0]
        moved = _Moved(costs, by_name[name], source["stage"], target["stage"])
        gain = 1 - Simulation(schedule, moved).span / before if before else 0.0
        if gain >= _LEAST_GAIN and (best is None or gain > best.gain):
            best = Move(name, target["stage"], target["ipu"], gain)
    return best


def _neighbours(shares: list[dict], stages: set[int], schedule: Schedule, costs: DeviceCosts):
    """Pairs of stages between which a block can move: from the slowest stages, which decide how
    long a step takes, to their neighbours."""
    known = [share for share in shares if share["stage"] in stages]
    work = {stage: sum(costs.task(task) for task in schedule.tasks if task.stage == stage)
            for stage in stages}
    for first, second in zip(known, known[1:]):
        for source, target in ((first, second), (second, first)):
            if work[source["stage"]] == max(work.values()):
                yield source, target
