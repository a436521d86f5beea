"""What ``report`` returns: whether a program fits an IPU system, and how fast it is."""

import html
import json
from functools import cached_property
from pathlib import Path
from typing import Any

from poptorch import _C
from poptorch._reports import page
from poptorch._reports.device import diff, snapshot, text
from poptorch._reports.device.costs import DeviceCosts
from poptorch._reports.device.rows import OpRow, TileMemory
from poptorch._reports.schedule import Schedule, Task
from poptorch._reports.simulation import Simulation
from poptorch._reports.timeline import Timeline
from poptorch.errors import Error
from poptorch.options._target import rows as known_targets

FORMAT = 1
_MOST_ROWS = 200_000  # of the timeline in a file
_COSTS = ("tasks", "edges", "host", "steps", "host_call_cycles", "sync_cycles", "error")


class _DeviceTime(DeviceCosts):
    """The costs of a step if transfers from and to the host took no time."""

    def host_in(self, task: Task) -> float:
        return 0.0

    def host_out(self, task: Task) -> float:
        return 0.0


class DeviceReport:
    """What a program costs on an IPU system: cycles, tile memory, and which operations need them.

    :meth:`PoplarExecutor.report` returns it. All numbers come from a model of the device; nothing
    runs. A step is what one call runs: all device iterations, all micro-batches and the weight
    updates.

    Attributes:
        title: what was compiled.
        target: name of the kind of IPU.
        fits: whether the fullest tile of each IPU, and streaming memory, have room.
        cycles: of one step on the device, without transfers from and to the host.
        seconds: the same in seconds.
        interval: the lowest and the highest number of cycles that are likely (90 %).
        throughput: samples per second of all replicas, by ``seconds``.
        host: what the host adds to a step: ``call_seconds``, the fixed time of a call, and
            ``stream_seconds``, by which transfers make the step longer.
        memory: bytes by category over all IPUs of one replica, at the peak of each IPU;
            "streaming" is not on the chip.
        options: those that differ from the default, by name.

    Example:
        >>> import poptorch, torch
        >>> found = poptorch.estimate(torch.nn.Linear(4, 2), poptorch.Options(), torch.ones(3, 4))
        >>> found.fits, found.interval[0] <= found.cycles <= found.interval[1]
        (True, True)
    """

    def __init__(self, values: dict[str, Any]):
        self._values = values
        self.title: str = values["title"]
        self.target: str = values["target"]
        self.fits: bool = values["fits"]
        self.cycles: float = values["cycles"]
        self.seconds: float = values["seconds"]
        self.interval: tuple[float, float] = tuple(values["interval"])
        self.throughput: float = values["throughput"]
        self.host: dict[str, float] = values["host"]
        self.memory: dict[str, int] = values["memory"]
        self.options: dict[str, str] = values["options"]

    @cached_property
    def tile_memory(self) -> TileMemory:
        """The memory of tiles: ``peak`` (bytes on the fullest tile), ``limit``, ``by_tile``, and
        ``ipus``: for each IPU its ``peak``, ``mean``, ``by_tile``, ``categories``, ``steps`` and
        ``live_at_peak``."""
        return TileMemory(self._values["ipus"], self._values["tile_bytes"])

    @cached_property
    def ops(self) -> list[OpRow]:
        """A row for each operation, in the order of the program.

        A row has ``op``, ``module``, ``location``, ``ipu``, ``part``, ``runs``, ``compute``,
        ``exchange``, ``sync`` (cycles of one run), ``cycles`` (of all runs in the span of the
        timeline), ``flops``, ``utilisation``, ``temporary_bytes``, ``is_bound`` and ``plan``.
        """
        return [OpRow(**row) for row in self._values["ops"]]

    @property
    def opaque_ops(self) -> list[OpRow]:
        """The rows of operations that the model has no rule for. Their costs are bounds."""
        return [row for row in self.ops if row.is_bound]

    @cached_property
    def timeline(self) -> Timeline:
        """What each IPU does when, in cycles; see :meth:`PoplarExecutor.timeline`."""
        return Timeline(Schedule.of_report(self._values["schedule"]),
                        DeviceCosts(self._values["costs"]), self._values["replicas"])

    def to_json(self, path: str | Path) -> None:
        """Writes a file that :meth:`from_json` reads.

        Args:
            path: of the file.
        """
        Path(path).write_text(json.dumps(self._whole(), allow_nan=False), encoding="utf-8")

    @classmethod
    def from_json(cls, path: str | Path) -> "DeviceReport":
        """Reads the file of :meth:`to_json`.

        Args:
            path: of the file.

        Raises:
            poptorch.Error: The file does not contain a report of this version.

        Example:
            >>> import poptorch, tempfile, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.compile(torch.ones(3, 4))
            >>> path = tempfile.mkdtemp() + "/report.json"
            >>> model.report().to_json(path)
            >>> poptorch.DeviceReport.from_json(path).cycles == model.report().cycles
            True
        """
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise Error(f"[DeviceReport] {path} is not a JSON file: {error}. Give a file that "
                        f"to_json wrote.") from None
        found = values.get("format") if isinstance(values, dict) else None
        if found != FORMAT:
            raise Error(f"[DeviceReport] {path} has format {found!r}, this version of poptorch "
                        f"reads {FORMAT}. Write the report again with to_json.")
        return cls(values)

    def to_html(self, path: str | Path, other: "DeviceReport | None" = None) -> None:
        """Writes the report as one HTML page that needs no other file.

        Args:
            path: of the page.
            other: the report from before, to compare with on the page; None: no comparison.
        """
        whole = page.render(self._whole(), other and other._whole())
        Path(path).write_text(whole, encoding="utf-8")

    def to_memory_snapshot(self, path: str | Path) -> None:
        """Writes a snapshot for PyTorch's memory viewer (pytorch.org/memory_viz).

        Each IPU is a device, a unit of time is one operation, and sizes are bytes over all tiles.
        Values below a thousandth of the peak are left out.

        Args:
            path: of the file, usually ``.pickle``.

        Example:
            >>> import poptorch, pickle, tempfile, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.compile(torch.ones(3, 4))
            >>> path = tempfile.mkdtemp() + "/memory.pickle"
            >>> model.report().to_memory_snapshot(path)
            >>> with open(path, "rb") as file:
            ...     snapshot = pickle.load(file)
            >>> sorted(snapshot), snapshot["device_traces"][0][0]["action"]
            (['device_traces', 'segments'], 'alloc')
        """
        snapshot.write(path, self._values["ipus"])

    def _whole(self) -> dict[str, Any]:
        """All values, with the rows of the timeline."""
        line = self.timeline
        found, left_out = line._few_rows(_MOST_ROWS)
        rows = [[row.ipu, row.kind, row.task, row.micro_batch, row.begin, row.end, row.track]
                for row in found]
        return self._values | {"timeline": {
            "units": line.units, "span": line.span, "replicas": self._values["replicas"],
            "left_out": left_out, "rows": rows}}

    def diff(self, other: "DeviceReport") -> str:
        """The differences between this report and another report, as text.

        Args:
            other: the report from before.

        Returns:
            A line for each number, option and operation that differs, the operations with the
            largest changes first; ``"no differences"`` if there is none.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.compile(torch.ones(3, 4))
            >>> model.report().diff(model.report())
            'no differences'
        """
        return diff.text(other, self)

    def __repr__(self) -> str:
        return text.page(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def device_report(text: str, *, target: str | dict[str, Any], settings: dict[str, Any],
                  options_changed: dict[str, str], replicas: int, device_iterations: int,
                  accumulation: int, samples: int, title: str) -> DeviceReport:
    """The report of a program's text after the step place. ``samples``: of one step, of all
    replicas."""
    costs = _C.program_costs(text, target, settings)
    ipus = _C.tile_memory(text, target, settings)
    tasks = _C.task_report(text)
    times = device_iterations * accumulation / tasks["micro_batches"]
    schedule = Schedule.of_report(tasks)
    line = Timeline(schedule, DeviceCosts(costs), replicas)
    cycles = Simulation(schedule, _DeviceTime(costs), kept=()).span * times
    streams = line.span * times - cycles
    clock, limit = costs["clock_hz"], costs["tile_bytes"]
    machine = target if isinstance(target, dict) else known_targets()[target]
    memory = {name: sum(ipu["categories"][name] for ipu in ipus)
              for name in (ipus[0]["categories"] if ipus else ())}
    has_room = memory.get("streaming", 0) <= machine["streaming_bytes"] * len(ipus)
    report = DeviceReport({
        "format": FORMAT, "title": title, "target": costs["target"], "clock_hz": clock,
        "tiles": costs["tiles"], "tile_bytes": limit,
        "streaming_bytes": machine["streaming_bytes"],
        "fits": has_room and all(ipu["peak_bytes"] <= limit for ipu in ipus),
        "cycles": cycles, "interval": [cycles * factor for factor in costs["interval"]],
        "seconds": cycles / clock, "throughput": samples * clock / cycles if cycles else 0.0,
        "samples": samples, "replicas": replicas,
        "host": {"call_seconds": costs["host_call_cycles"] / clock,
                 "stream_seconds": streams / clock},
        "options": options_changed, "memory": memory, "ipus": ipus, "ops": costs["ops"],
        "schedule": {**tasks, "name": schedule.name},
        "costs": {name: costs[name] for name in _COSTS}})
    report.timeline = line
    return report
