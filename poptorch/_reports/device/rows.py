"""The rows of a device report: operations, and the memory of each IPU."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class OpRow:
    """What one operation costs on its IPU.

    Attributes:
        id: its number, the same as in ``MemoryStep.id``.
        graph: of the program's text after the step "place".
        op: name of the operation.
        result: name of the result in that text; empty if there is none.
        shape: type of the result, such as ``f16[2,4]``.
        module: path of the module that calls it; empty if not known.
        location: ``file.py:line`` of the call; empty if not known.
        task: name of the task that runs it; empty for updates.
        ipu: number of the IPU within the replica.
        part: ``"forward"``, ``"backward"`` or ``"update"``.
        family: the rule that gives its cost.
        runs: how often one replica runs it in the span of the timeline.
        runs_are_known: False where a tensor decides how often a loop runs.
        compute: cycles of one run that the tiles compute.
        exchange: cycles of one run that tiles exchange data.
        sync: cycles of one run that tiles wait for each other.
        flops: floating-point operations of one run.
        utilisation: ``flops`` over what the IPU can compute in the cycles of one run, 0 to 1.
        always_bytes: bytes on the fullest tile that it needs all the time, such as code.
        temporary_bytes: bytes on the fullest tile while it runs.
        is_bound: True if no rule knows the operation: its cost is a bound from bytes and FLOPs.
        plan: how it is split over tiles, as text.
    """

    id: int
    graph: str
    op: str
    result: str
    shape: str
    module: str
    location: str
    task: str
    ipu: int
    part: str
    family: str
    runs: int
    runs_are_known: bool
    compute: float
    exchange: float
    sync: float
    flops: float
    utilisation: float
    always_bytes: float
    temporary_bytes: float
    is_bound: bool
    plan: str

    @property
    def cycles(self) -> float:
        """Cycles of all its runs in the span of the timeline."""
        return self.runs * (self.compute + self.exchange + self.sync)

    @property
    def place(self) -> str:
        """The operation, its module and its line, for messages."""
        return place_of(self.op, self.module, self.location)


@dataclass(frozen=True)
class LiveValue:
    """A value in the memory of an IPU at its peak: its name, category, bytes over all tiles, and
    the module and line that made it."""

    name: str
    category: str
    bytes: int
    module: str
    location: str

    @property
    def place(self) -> str:
        """The value, its module and its line, for messages."""
        return place_of(self.name, self.module, self.location)


@dataclass(frozen=True)
class MemoryStep:
    """The memory of an IPU while it runs one operation.

    Attributes:
        id: number of the operation, see ``OpRow.id``.
        op: its name.
        module: path of the module that calls it.
        location: ``file.py:line`` of the call.
        live: bytes over all tiles by category.
        temporary: bytes over all tiles that only this operation uses.
        tile_bytes: bytes on the fullest tile.
    """

    id: int
    op: str
    module: str
    location: str
    live: dict[str, int]
    temporary: int
    tile_bytes: int


class IpuMemory:
    """The memory of one IPU.

    Attributes:
        ipu: its number within the replica.
        peak: bytes on the fullest tile at the peak, gaps included.
        peak_without_gaps: the same without gaps.
        mean: mean bytes of all tiles at the peak.
        by_tile: bytes of each tile at the peak.
        categories: bytes over all tiles by category; "streaming" is not on the chip.
    """

    def __init__(self, values: dict[str, Any]):
        self._values = values
        self.ipu: int = values["ipu"]
        self.peak: int = values["peak_bytes"]
        self.peak_without_gaps: int = values["peak_without_gaps"]
        self.mean: int = values["mean_bytes"]
        self.by_tile: list[int] = values["by_tile"]
        self.categories: dict[str, int] = values["categories"]

    @cached_property
    def steps(self) -> list[MemoryStep]:
        """A :class:`MemoryStep` for each operation, in the order in which the IPU runs them."""
        return [MemoryStep(**row) for row in self._values["steps"]]

    @cached_property
    def live_at_peak(self) -> list[LiveValue]:
        """A :class:`LiveValue` for each large value at the peak, the largest first."""
        return [LiveValue(**row) for row in self._values["live_at_peak"]]


class TileMemory:
    """The memory of the tiles of all IPUs of one replica.

    Attributes:
        limit: bytes of one tile.
        ipus: an :class:`IpuMemory` for each IPU.
    """

    def __init__(self, ipus: list[dict[str, Any]], limit: int):
        self.limit = limit
        self.ipus = [IpuMemory(values) for values in ipus]

    @property
    def fullest(self) -> IpuMemory:
        """The IPU with the highest peak."""
        return max(self.ipus, key=lambda ipu: ipu.peak)

    @property
    def peak(self) -> int:
        """Bytes on the fullest tile of all IPUs."""
        return self.fullest.peak

    @property
    def by_tile(self) -> list[int]:
        """Bytes of each tile of the fullest IPU at its peak."""
        return self.fullest.by_tile

    def __repr__(self) -> str:
        return "\n".join(f"IPU {one.ipu}: peak {one.peak} of {self.limit} bytes on a tile, mean "
                         f"{one.mean}" for one in self.ipus)


def place_of(what: str, module: str, location: str) -> str:
    """``what in module (file.py:line)``; parts that are not known are left out."""
    return what + (f" in {module}" if module else "") + (f" ({location})" if location else "")
