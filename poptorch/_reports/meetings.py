"""Where IPUs wait for one another before an exchange with the host."""

from collections.abc import Mapping, Sequence

from poptorch._reports.schedule import Schedule, Task


class Meetings:
    """The meetings of all IPUs of a replica: one in each round that exchanges data with the host.

    The meeting is when the first task of the round with an exchange begins. Each IPU takes part
    before what it begins or ends at that time or later. Times are the numbers of rounds if no
    IPU waits for a different one within a round, else those of a run without meetings.

    Args:
        schedule: of the program.
        begins: when each task begins each micro-batch.
        ends: when it ends.
    """

    def __init__(self, schedule: Schedule, begins: Mapping[str, Sequence[float]],
                 ends: Mapping[str, Sequence[float]]):
        self._runs = {"begins": begins, "ends": ends}
        talks = {transfer.task for transfer in schedule.transfers
                 if (transfer.memory, transfer.overlap) == ("host", "none")}
        first: dict[int, float] = {}  # by round
        for task in schedule.tasks:
            for batch, begin in enumerate(begins[task.name] if task.name in talks else ()):
                number = task.offset + batch
                first[number] = min(first.get(number, begin), begin)
        self._times = sorted(first.values())
        self._ipus = schedule.ipus
        self._attended = dict.fromkeys(self._ipus, 0)
        self._missing = [len(self._ipus)] * len(first)
        self._last = [0.0] * len(first)  # when the last IPU so far has arrived

    def time_of(self, task: Task, batch: int, what: str) -> float:
        """When the task ``begins`` or ``ends`` a micro-batch."""
        return self._runs[what][task.name][batch]

    def is_due(self, ipu: int, time: float) -> bool:
        """Whether the IPU has a meeting before what it does at a time."""
        number = self._attended[ipu]
        return number < len(self._times) and self._times[number] <= time

    def arrive(self, ipu: int, time: float) -> None:
        """The IPU waits for its next meeting from ``time`` on."""
        number = self._attended[ipu]
        self._missing[number] -= 1
        self._last[number] = max(self._last[number], time)

    def begin(self, ipu: int) -> float | None:
        """When the meeting begins for which the IPU waits; None: not all IPUs are there yet."""
        number = self._attended[ipu]
        return None if self._missing[number] else self._last[number]

    def leave(self, ipu: int) -> None:
        """The IPU has met the others."""
        self._attended[ipu] += 1
