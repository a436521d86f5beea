"""What each IPU does when: what ``timeline`` returns."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from poptorch._reports import timeline_drawing, timeline_trace
from poptorch._reports.schedule import Schedule
from poptorch._reports.simulation import Costs, Simulation, Span


@dataclass(frozen=True)
class Row:
    """What one IPU of one replica does from ``begin`` to ``end``.

    Attributes:
        replica: its number.
        ipu: within the replica.
        kind: ``"compute"``, ``"exchange"`` (values arrive from another IPU, from streaming
            memory or from a stash, or leave for streaming memory), ``"host"``, ``"sync"`` (all
            IPUs of the replica meet), ``"all_reduce"``, ``"update"`` or ``"idle"``.
        task: name of the task; None for other rows.
        micro_batch: its number; None for other rows.
        begin: in the units of the timeline.
        end: in the same units.
        track: ``"compute"``, or ``"io"`` for transfers by the IO tiles, which happen meanwhile.
            With ``OverlapDeviceIterationLoop`` this track has the last results of the step before
            and the first inputs of the step after.
    """

    replica: int
    ipu: int
    kind: str
    task: str | None
    micro_batch: int | None
    begin: float
    end: float
    track: str = field(default="compute", repr=False)


class Timeline:
    """One step of a program in time, computed from its schedule.

    Attributes:
        span: how long the step takes.
        units: of times: ``"cycles"`` of the target's clock; ``"relative"`` within
            :func:`poptorch.testing.stage_costs`.
    """

    def __init__(self, schedule: Schedule, costs: Costs, replicas: int = 1):
        self._schedule, self._costs = schedule, costs
        self._simulation = Simulation(schedule, costs, kept=())
        self._replicas = replicas
        self.units: str = costs.units
        self.span: float = self._simulation.span

    @property
    def ipus(self) -> list[int]:
        """The IPUs that do something, rising. Those that ``autoRoundNumIPUs`` adds are left out."""
        return self._simulation.ipus

    @cached_property
    def _whole(self) -> Simulation:
        """With what happens to all micro-batches: millions of spans on hundreds of IPUs."""
        return Simulation(self._schedule, self._costs)

    @property
    def rows(self) -> list[Row]:
        """A :class:`Row` for all that happens, by replica, IPU, track and time. The compute rows of
        an IPU fill the span; what costs nothing has a row that ends where it begins."""
        spans = list(self._spans(self._whole))
        return [Row(replica, span.ipu, span.kind, span.task, span.micro_batch, span.begin, span.end,
                    span.track)
                for replica in range(self._replicas) for span in spans]

    def _few_rows(self, most: int) -> tuple[list[Row], list[int]]:
        """The rows of one replica. Where they may be more than `most`: those of as many of the
        first and of the last micro-batches as there is room for, without idle rows. Then the first
        and the last of the other micro-batches."""
        schedule = self._schedule
        count = schedule.micro_batches
        of_each = 2 * (2 * len(schedule.tasks) + len(schedule.edges) + len(schedule.transfers))
        ends = max(1, most // of_each // 2) if of_each else count
        if 2 * ends >= count:
            return [row for row in self.rows if row.replica == 0], []
        kept = {*range(ends), *range(count - ends, count)}
        found = Simulation(schedule, self._costs, kept=kept).spans
        found.sort(key=lambda span: (span.ipu, span.track == "io"))
        return ([Row(0, span.ipu, span.kind, span.task, span.micro_batch, span.begin, span.end,
                     span.track) for span in found], [ends, count - ends - 1])

    def _spans(self, simulation: Simulation) -> Iterator[Span]:
        of_ipu: dict[int, list[Span]] = {ipu: [] for ipu in self.ipus}
        for span in simulation.spans:
            of_ipu[span.ipu].append(span)
        for ipu, spans in of_ipu.items():
            free = 0.0
            for span in (span for span in spans if span.track == "compute"):
                if span.begin > free:
                    yield Span(ipu, "idle", free, span.begin)
                yield span
                free = span.end
            if self.span > free:
                yield Span(ipu, "idle", free, self.span)
            yield from (span for span in spans if span.track == "io")

    def idle_share(self, ipu: int | None = None) -> float:
        """The part of the time in which IPUs wait: 1 - busy / (IPUs x span).

        An IPU is busy while its compute tiles are. What IO tiles do meanwhile does not count.

        Args:
            ipu: one of the IPUs that the program uses; None: all of them.

        Returns:
            From 0 to 1. 0 where nothing costs anything.

        Raises:
            ValueError: The program does not use this IPU.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.compile(torch.ones(3, 4))
            >>> model.timeline().idle_share()
            0.0
        """
        used = self.ipus
        if ipu is not None and ipu not in used:
            raise ValueError(f"[idle_share] the program uses the IPUs {used}, got {ipu!r}. Give "
                             f"one of them.")
        ipus = used if ipu is None else [ipu]
        busy = sum(self._simulation.busy[one] for one in ipus)
        whole = len(ipus) * self.span
        return (whole - busy) / whole if whole else 0.0

    def to_perfetto(self, path: str | Path) -> None:
        """Writes a file for https://ui.perfetto.dev: a process for each replica, a track for each
        IPU and for its IO tiles, arrows for copies, and the bytes of stashes.

        Args:
            path: of the JSON file. One unit of the timeline is a microsecond in it.
        """
        timeline_trace.write(path, self._whole, self._replicas)

    def plot(self, path: str | Path) -> None:
        """Draws the timeline of one replica, with the micro-batches' numbers. IO tiles have a thin
        lane of their own.

        It needs matplotlib: ``pip install poptorch[plot]``.

        Args:
            path: of the picture; its ending (``.png``, ``.svg``) chooses the format.

        Raises:
            poptorch.Error: matplotlib is not installed.
            ValueError: matplotlib does not know the format.
        """
        timeline_drawing.plot(path, list(self._spans(self._whole)), self._parts(), self.units)

    def _parts(self) -> dict[str, str]:
        return {task.name: task.part for task in self._schedule.tasks}

    def __repr__(self) -> str:
        ipus = self.ipus
        lines = [f"{self.units} span {self.span:g}, idle share {self.idle_share():.1%}"]
        lines += [f"IPU {ipu}: idle share {self.idle_share(ipu):.1%}" for ipu in ipus]
        return "\n".join(lines if len(ipus) > 1 else lines[:1])

    def _repr_html_(self) -> str:
        return timeline_drawing.svg(list(self._spans(self._whole)), self._parts(), self.span)
