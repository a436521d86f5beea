"""When each task of a program handles which micro-batch: what ``schedule`` returns."""

import html
from dataclasses import dataclass, field

from poptorch import _C

_WIDTH = 80
_MORE = " ..."


@dataclass(frozen=True)
class Task:
    """What one IPU computes of one micro-batch in one turn.

    Attributes:
        name: of the task's graph in ``ir("place")``.
        ipu: on which it runs.
        stage: the first of the stages that it computes.
        part: ``"forward"``, ``"backward"`` or ``"both"``.
        phase: in phased execution, else None. Tasks of one phase run at the same time.
        offset: in round r the task has micro-batch ``r - offset``.
        flops: of one micro-batch, as far as they are known.
        recomputed_flops: those of them that a forward task has, too.
        bytes_in: that it reads from the host, of one micro-batch.
        bytes_out: that it sends to the host.
    """

    name: str
    ipu: int
    stage: int
    part: str
    phase: int | None
    offset: int
    flops: float
    recomputed_flops: float
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True)
class Edge:
    """What passes from one task to another.

    Attributes:
        source: name of the task that makes the values.
        target: name of the task that takes them.
        bytes: of one micro-batch.
        depth: for how many micro-batches there is room.
        memory: ``"chip"`` or ``"streaming"``: where the values are meanwhile.
        stored_bytes: of ``bytes``, those that this edge brings to streaming memory: a value with
            several targets is stored once.
        loads_by_io_tiles: whether the IO tiles load the values from streaming memory.
        stores_by_io_tiles: whether the IO tiles store them there.
    """

    source: str
    target: str
    bytes: int
    depth: int
    memory: str
    stored_bytes: int = field(default=0, repr=False, compare=False)
    loads_by_io_tiles: bool = field(default=False, repr=False, compare=False)
    stores_by_io_tiles: bool = field(default=False, repr=False, compare=False)


@dataclass(frozen=True)
class Transfer:
    """What a task moves in each micro-batch.

    Attributes:
        task: its name.
        memory: ``"host"``, or ``"streaming"``: weights that the IO tiles load.
        direction: ``"in"`` or ``"out"``.
        overlap: with what it may happen at the same time: ``"none"``, ``"loop"`` (tasks of other
            micro-batches of the step) or ``"step"`` (those of the steps before and after, too).
        bytes: of one micro-batch.
    """

    task: str
    memory: str
    direction: str
    overlap: str
    bytes: int


@dataclass(frozen=True)
class Step:
    """What one IPU does once in a step, besides its tasks: ``kind`` is update or all_reduce."""

    ipu: int
    kind: str
    flops: float


class Schedule:
    """The tasks of a program and their rounds; printed, a drawing of the first rounds.

    Attributes:
        name: of the pipeline schedule; ``"sequential"`` where no two tasks run at the same time.
        sync: which IPUs meet before one talks to the host: ``"full"`` (all of the replica),
            ``"single_pipeline"`` or ``"replica_and_ladder"`` (none).
        micro_batches: that one step handles.
        tasks: in the order in which a round has them.
        edges: what passes between tasks.
        transfers: what tasks move from and to the host, or load ahead.
        steps: what follows when all micro-batches are done.
    """

    def __init__(self, text: str):
        self._read(_C.task_report(text))

    @classmethod
    def of_report(cls, report: dict) -> "Schedule":
        """The schedule that ``_C.task_report`` described."""
        new = cls.__new__(cls)
        new._read(report)
        return new

    def _read(self, report: dict) -> None:
        self.name: str = report["schedule"]
        self.sync: str = report["sync"]
        self.micro_batches: int = report["micro_batches"]
        self.tasks = [Task(**row) for row in report["tasks"]]
        self.edges = [Edge(**row) for row in report["edges"]]
        self.transfers = [Transfer(**row) for row in report["transfers"]]
        self.steps = [Step(**row) for row in report["steps"]]

    @property
    def ipus(self) -> list[int]:
        """The IPUs that run tasks, rising."""
        return sorted({task.ipu for task in self.tasks})

    def stash_bytes(self, stage: int, phase: int | None = None) -> int:
        """Bytes on the chip that the forward task of a stage, in phased execution of a phase,
        keeps for later tasks of its stage."""
        tasks = {task.name: task for task in self.tasks}
        held = 0
        for edge in self.edges:
            source, target = tasks[edge.source], tasks[edge.target]
            is_own = (source.ipu, source.stage) == (target.ipu, target.stage)
            if is_own and edge.memory == "chip" and (source.stage, source.phase) == (stage, phase):
                held += edge.bytes * edge.depth
        return held

    def __repr__(self) -> str:
        count = self.micro_batches
        title = f"{self.name}, {count} micro-batch{'es' if count > 1 else ''}"
        return "\n".join([title, *_drawing(self)])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def _turns(schedule: Schedule):
    """The columns of the drawing, one after the other: a dictionary from an IPU to what it does.

    A column is a round. Where all tasks have one offset a round has a column for each task, as
    one starts when the one before ends.
    """
    tasks, count = schedule.tasks, schedule.micro_batches
    offsets = {task.offset for task in tasks}
    for number in range(max(offsets) + count):
        column: dict[int, str] = {}
        for task in tasks:
            batch = number - task.offset
            if not 0 <= batch < count:
                continue
            parts = "FB" if task.part == "both" else task.part[0].upper()
            words = "".join(f"{part}{batch}" for part in parts)
            if len(offsets) == 1:
                yield {task.ipu: words}
            else:
                column[task.ipu] = column.get(task.ipu, "") + words
        if len(offsets) > 1:
            yield column


def _drawing(schedule: Schedule) -> list[str]:
    if not schedule.tasks:
        return []
    names = [f"IPU {ipu}" for ipu in schedule.ipus]
    indent = max(map(len, names)) + 1
    lines = dict(zip(schedule.ipus, (name.ljust(indent) for name in names)))
    used = indent
    for column in _turns(schedule):
        width = max(map(len, column.values()), default=1)
        used += 1 + width
        if used > _WIDTH - len(_MORE):
            return [(line + _MORE).rstrip() for line in lines.values()]
        lines = {ipu: f"{line} {column.get(ipu, '.').ljust(width)}" for ipu, line in lines.items()}
    return [line.rstrip() for line in lines.values()]
