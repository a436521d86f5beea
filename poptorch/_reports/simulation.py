"""The run of a schedule in time, without running the program.

Each IPU runs its tasks in the order of rounds. It begins one when what the task reads is there, and
is done with it when what holds the results has room. IO tiles transfer meanwhile.
"""

from collections import defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from poptorch._reports.meetings import Meetings
from poptorch._reports.schedule import Edge, Schedule, Step, Task, Transfer
from poptorch.errors import Error


class Costs(Protocol):
    """How long things take, in ``units``."""

    units: str

    def task(self, task: Task) -> float:
        """The computation of one micro-batch."""

    def edge(self, edge: Edge) -> float:
        """The transfer of one micro-batch, at the IPU that takes it; of a stash, on the chip or in
        streaming memory, the store and the load, half each."""

    def host_in(self, task: Task) -> float:
        """What the task reads from the host for one micro-batch."""

    def host_out(self, task: Task) -> float:
        """What the task sends to the host for one micro-batch."""

    def read_ahead(self, task: Task) -> float:
        """The weights that the IO tiles load for one micro-batch of the task."""

    def sync(self) -> float:
        """A meeting of all IPUs of a replica. At 0 there are no meetings."""

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

    def read_ahead(self, task: Task) -> float:
        return 0.0

    def sync(self) -> float:
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
    track: str = "compute"


@dataclass
class _Traffic:
    """What a task reads and sends: by the compute tiles in its own turn, by the IO tiles while
    other tasks compute."""

    copies: list[Edge] = field(default_factory=list)  # from other IPUs
    loads: list[Edge] = field(default_factory=list)
    stores: list[Edge] = field(default_factory=list)
    inputs: list[Transfer] = field(default_factory=list)
    outputs: list[Transfer] = field(default_factory=list)
    ahead: list[Edge | Transfer] = field(default_factory=list)   # loads and inputs by IO tiles
    behind: list[Edge | Transfer] = field(default_factory=list)  # stores and outputs


# Times, one for each micro-batch, and how many micro-batches before the one that is run.
_Times = tuple[list[float], int]


@dataclass
class _Turn:
    """What a task does in its turn, the same for each micro-batch. A program of hundreds of IPUs
    has a million turns, so all that does not depend on the micro-batch is found before."""

    task: Task
    traffic: _Traffic
    needs: list[_Times]  # what must have happened before the task begins
    room: list[_Times]  # what must have begun before it ends
    waits: list[list[float]]  # when its values are in streaming memory, for the IO tiles
    before: list[tuple[str, float]]  # kinds and times of its transfers
    compute: float
    stores: list[tuple[list[float], float]]
    outputs: list[float]
    computes: list[float] = field(default_factory=list)  # when computation begins


class Simulation:
    """One step of one replica.

    Args:
        schedule: of the program.
        costs: of what the schedule has.
        meets: False leaves the meetings out.
        kept: micro-batches whose spans are recorded; None: all of them.

    Attributes:
        spans: of all IPUs, in the order in which each track of an IPU has them.
        busy: by IPU, for how long its compute tiles do something.
        begins: by the name of a task, when it begins each micro-batch.
        ends: when its results are where they are read, in the same units.
    """

    def __init__(self, schedule: Schedule, costs: Costs, meets: bool = True,
                 kept: Container[int] | None = None):
        self.schedule, self._costs = schedule, costs
        self._kept = range(schedule.micro_batches) if kept is None else kept
        self.spans: list[Span] = []
        self.begins: dict[str, list[float]] = {task.name: [] for task in schedule.tasks}
        self.ends: dict[str, list[float]] = {task.name: [] for task in schedule.tasks}
        self._meetings = _meetings(schedule, costs) if meets else None
        self._news = 0  # of what others may wait for: ends of tasks, arrivals at meetings
        self._tasks = {task.name: task for task in schedule.tasks}
        # When values are in streaming memory, on the IO tiles, or gone from these: of each
        # micro-batch.
        self._stored: dict[Edge, list[float]] = {edge: [] for edge in schedule.edges}
        self._arrived: dict[Edge | Transfer, list[float]] = defaultdict(list)
        self._gone: dict[Edge | Transfer, float] = defaultdict(float)
        # By IPU: when its compute tiles and its IO tiles have time for what comes next.
        self._free = dict.fromkeys(sorted({*schedule.ipus, *(s.ipu for s in schedule.steps)}), 0.0)
        self._io_free = dict.fromkeys(self._free, 0.0)
        self.busy = dict.fromkeys(self._free, 0.0)
        self._turns = self._all_turns()
        self._run_tasks()
        self._run_steps()

    @property
    def span(self) -> float:
        """When the last IPU is done."""
        return max((*self._free.values(), *self._io_free.values()), default=0.0)

    @property
    def ipus(self) -> list[int]:
        """The IPUs that do something."""
        return list(self._free)

    def _run_tasks(self) -> None:
        self._continue_last_step()
        waiting = [self._worker(ipu) for ipu in self.schedule.ipus]
        while waiting:
            before = len(self.spans), self._news
            waiting = [worker for worker in waiting if next(worker, None) is not None]
            if waiting and before == (len(self.spans), self._news):
                raise Error("[timeline] the tasks of the program wait for each other. Compile the "
                            "model again.")

    def _run_steps(self) -> None:
        """What follows the micro-batches; it waits for what overlaps only with these."""
        for ipu, turns in self._turns.items():
            done = [self._gone[item] for turn in turns for item in turn.traffic.behind
                    if _overlap(item) == "loop"]
            self._free[ipu] = max([self._free[ipu], *done])
        for step in sorted(self.schedule.steps, key=lambda step: step.kind != "all_reduce"):
            self._spend(step.ipu, step.kind, self._costs.step(step),
                        near=self.schedule.micro_batches - 1)

    def _spend(self, ipu: int, kind: str, cost: float, task: str | None = None,
               micro_batch: int | None = None, near: int | None = None) -> None:
        """``near``: the micro-batch with which the span is kept, where it belongs to none."""
        begin = self._free[ipu]
        self._free[ipu] = end = begin + cost
        self.busy[ipu] += end - begin
        if (near if micro_batch is None else micro_batch) in self._kept:
            self.spans.append(Span(ipu, kind, begin, end, task, micro_batch))

    def _worker(self, ipu: int) -> Iterator[bool]:
        """Runs the tasks of an IPU; it yields where it must wait."""
        turns = self._turns[ipu]
        count = self.schedule.micro_batches
        for number in range(max(turn.task.offset for turn in turns) + count):
            for turn in turns:
                batch = number - turn.task.offset
                if 0 <= batch < count:
                    yield from self._run(turn, batch)
        yield from self._meet(ipu, float("inf"), count - 1)

    def _all_turns(self) -> dict[int, list[_Turn]]:
        """By IPU, in the order in which a round has them."""
        sources = _by_task((edge.target, edge) for edge in self.schedule.edges)
        targets = _by_task((edge.source, edge) for edge in self.schedule.edges)
        in_turn = _turns(self.schedule) if self.schedule.name == "sequential" else {}
        found: dict[int, list[_Turn]] = {ipu: [] for ipu in self._free}
        for name, traffic in _traffic(self.schedule, self._costs).items():
            task = self._tasks[name]
            needs = [(self.ends[edge.source], 0) for edge in sources[name] if edge.memory == "chip"]
            needs += ((self._stored[edge], 0) for edge in traffic.loads)
            needs += ((self.ends[one], lag) for one, lag in in_turn.get(name, ()))
            loads = [("exchange", item) for item in traffic.copies + traffic.loads]
            loads += (("host", item) for item in traffic.inputs)
            found[task.ipu].append(_Turn(
                task, traffic, needs, [(self.begins[edge.target], edge.depth)
                                       for edge in targets[name]],
                [self._stored[item] for item in traffic.ahead if isinstance(item, Edge)],
                [(kind, self._load_cost(item)) for kind, item in loads], self._costs.task(task),
                [(self._stored[edge], self._store_cost(edge)) for edge in traffic.stores],
                [self._store_cost(item) for item in traffic.outputs]))
        return found

    def _run(self, turn: _Turn, batch: int) -> Iterator[bool]:
        task = turn.task
        name, ipu = task.name, task.ipu
        if self._meetings is not None:
            yield from self._meet(ipu, self._meetings.time_of(task, batch, "begins"), batch)
        for times, lag in turn.needs:
            while len(times) <= batch - lag:
                yield True
        begin = self._free[ipu] = _latest(self._free[ipu], turn.needs, batch)
        self.begins[name].append(begin)
        for times in turn.waits:
            while len(times) <= batch:
                yield True
        self._compute(turn, batch)
        if self._meetings is not None and any(depth <= batch for _, depth in turn.room):
            yield from self._meet(ipu, self._meetings.time_of(task, batch, "ends"), batch)
        for times, depth in turn.room:
            while len(times) <= batch - depth:
                yield True
        end = self._free[ipu] = _latest(self._free[ipu], turn.room, batch)
        self.ends[name].append(end)
        self._news += 1

    def _compute(self, turn: _Turn, batch: int) -> None:
        traffic, ipu, name = turn.traffic, turn.task.ipu, turn.task.name
        for kind, cost in turn.before:
            self._spend(ipu, kind, cost, name, batch)
        for item in traffic.ahead:
            if len(self._arrived[item]) <= batch:
                self._bring(turn, item)
            self._free[ipu] = max(self._free[ipu], self._arrived[item][batch])
        turn.computes.append(self._free[ipu])
        self._read_ahead(ipu)
        self._spend(ipu, "compute", turn.compute, name, batch)
        for stored, cost in turn.stores:
            self._spend(ipu, "exchange", cost, name, batch)
            stored.append(self._free[ipu])
        for item in traffic.behind:
            self._free[ipu] = max(self._free[ipu], self._gone[item])
            if _overlap(item) != "step" or batch < self.schedule.micro_batches - 1:
                self._send(turn.task, item, batch, self._free[ipu])
        for cost in turn.outputs:
            self._spend(ipu, "host", cost, name, batch)

    # -- IO tiles ------------------------------------------------------------------------------

    def _continue_last_step(self) -> None:
        """The step before has loaded the first inputs, and left its last outputs to this one."""
        for turn in (turn for turns in self._turns.values() for turn in turns):
            for item in turn.traffic.ahead:
                if _overlap(item) == "step":
                    self._arrived[item].append(0.0)
            for item in turn.traffic.behind:
                if _overlap(item) == "step":
                    self._send(turn.task, item, self.schedule.micro_batches - 1, 0.0)

    def _read_ahead(self, ipu: int) -> None:
        """Begins to load what tasks have room for, as one has just begun to compute."""
        for turn in self._turns[ipu]:
            for item in turn.traffic.ahead:
                number = len(self._arrived[item])
                last = self.schedule.micro_batches + (_overlap(item) == "step")
                has_room = 0 < number == len(turn.computes) and number < last
                if has_room and self._is_here(item, number, ipu):
                    self._bring(turn, item)

    def _is_here(self, item: Edge | Transfer, number: int, ipu: int) -> bool:
        """Whether the IO tiles need not wait for another IPU, or for a task that comes later."""
        if isinstance(item, Transfer):
            return True
        return self._tasks[item.source].ipu == ipu and len(self._stored[item]) > number

    def _bring(self, turn: _Turn, item: Edge | Transfer) -> None:
        """Loads the next micro-batch, once the task has taken the one before."""
        number = len(self._arrived[item])
        ready = turn.computes[number - 1] if number else 0.0
        if isinstance(item, Edge):
            ready = max(ready, self._stored[item][number])
        end = self._transfer(turn.task, item, number, ready, self._load_cost(item))
        self._arrived[item].append(end)

    def _send(self, task: Task, item: Edge | Transfer, batch: int, ready: float) -> None:
        self._gone[item] = self._transfer(task, item, batch, ready, self._store_cost(item))
        if isinstance(item, Edge):
            self._stored[item].append(self._gone[item])

    def _transfer(self, task: Task, item: Edge | Transfer, batch: int, ready: float,
                  cost: float) -> float:
        """A row of the IO tiles; returns its end."""
        begin = max(self._io_free[task.ipu], ready)
        is_host = isinstance(item, Transfer) and item.memory == "host"
        batch %= self.schedule.micro_batches
        if batch in self._kept:
            self.spans.append(Span(task.ipu, "host" if is_host else "exchange", begin, begin + cost,
                                   task.name, batch, "io"))
        self._io_free[task.ipu] = begin + cost
        return begin + cost

    def _load_cost(self, item: Edge | Transfer) -> float:
        if isinstance(item, Edge):
            return self._costs.edge(item) / (2 if item.memory == "streaming" else 1)
        task = self._tasks[item.task]
        if item.memory == "streaming":
            return self._costs.read_ahead(task)
        return self._costs.host_in(task) * _share(item.bytes, task.bytes_in)

    def _store_cost(self, item: Edge | Transfer) -> float:
        if isinstance(item, Edge):
            return self._costs.edge(item) / 2 * _share(item.stored_bytes, item.bytes)
        task = self._tasks[item.task]
        return self._costs.host_out(task) * _share(item.bytes, task.bytes_out)

    # -- meetings ------------------------------------------------------------------------------

    def _meet(self, ipu: int, time: float, batch: int) -> Iterator[bool]:
        """The meetings of an IPU before what it does for a micro-batch, at a time of the run
        without meetings."""
        meetings = self._meetings
        while meetings is not None and meetings.is_due(ipu, time):
            meetings.arrive(ipu, self._free[ipu])
            self._news += 1
            while (begin := meetings.begin(ipu)) is None:
                yield True
            self._free[ipu] = begin
            self._spend(ipu, "sync", self._costs.sync(), near=batch)
            meetings.leave(ipu)


def _meetings(schedule: Schedule, costs: Costs) -> Meetings | None:
    if schedule.sync != "full" or len(schedule.ipus) < 2 or not costs.sync():
        return None
    if _is_in_step(schedule):
        rounds = {task.name: range(task.offset, task.offset + schedule.micro_batches)
                  for task in schedule.tasks}
        return Meetings(schedule, rounds, rounds)
    alone = Simulation(schedule, costs, meets=False, kept=())
    return Meetings(schedule, alone.begins, alone.ends)


def _is_in_step(schedule: Schedule) -> bool:
    """Whether no IPU waits for a result that a different IPU computes in the same round."""
    tasks = {task.name: task for task in schedule.tasks}
    pairs = [(tasks[edge.source], tasks[edge.target]) for edge in schedule.edges]
    return schedule.name != "sequential" and not any(
        one.ipu != two.ipu and one.offset == two.offset for one, two in pairs)


def _by_task(pairs: Iterator[tuple[str, Edge]]) -> dict[str, list[Edge]]:
    found: dict[str, list[Edge]] = defaultdict(list)
    for name, edge in pairs:
        found[name].append(edge)
    return found


def _latest(time: float, others: list[_Times], batch: int) -> float:
    """``time``, or the latest of the others."""
    for times, lag in others:
        if batch >= lag and times[batch - lag] > time:
            time = times[batch - lag]
    return time


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _overlap(item: Edge | Transfer) -> str:
    return item.overlap if isinstance(item, Transfer) else "loop"


def _traffic(schedule: Schedule, costs: Costs) -> dict[str, _Traffic]:
    """By the name of a task, what passes to and from it besides values that stay on the chip."""
    found = {task.name: _Traffic() for task in schedule.tasks}
    ipus = {task.name: task.ipu for task in schedule.tasks}
    for edge in schedule.edges:
        source, target = found[edge.source], found[edge.target]
        is_stash = ipus[edge.source] == ipus[edge.target] and edge.memory == "chip"
        if edge.memory == "streaming" or (is_stash and costs.edge(edge)):
            (source.behind if edge.stores_by_io_tiles else source.stores).append(edge)
            (target.ahead if edge.loads_by_io_tiles else target.loads).append(edge)
        elif not is_stash:
            target.copies.append(edge)
    for transfer in schedule.transfers:
        one, is_input = found[transfer.task], transfer.direction == "in"
        if transfer.overlap == "none":
            (one.inputs if is_input else one.outputs).append(transfer)
        else:
            (one.ahead if is_input else one.behind).append(transfer)
    return found


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
