"""The page of text that a device report prints."""

from collections.abc import Iterator

from poptorch._reports.device.rows import OpRow
from poptorch._reports.device.units import aligned, bytes_text, count_text, seconds_text

_MOST_OPS = 10
_MOST_IPUS = 16


def page(report) -> str:
    """The report as text."""
    parts = [_summary(report), _ipus(report), _categories(report), _operations(report)]
    if report.options:
        parts.append(["options: " + ", ".join(f"{name}={value}" for name, value
                                              in report.options.items())])
    return "\n\n".join("\n".join(part) for part in parts)


def _summary(report) -> list[str]:
    memory = report.tile_memory
    low, high = report.interval
    count = len(memory.ipus)
    lines = [f"{report.title} on {count} IPU{'s' if count > 1 else ''} ({report.target})",
             f"fits: {'yes' if report.fits else 'no'}; the fullest tile has "
             f"{bytes_text(memory.peak)} of {bytes_text(memory.limit)} "
             f"({memory.peak / memory.limit:.1%})",
             f"time of a step: {count_text(report.cycles)} cycles ({count_text(low)} to "
             f"{count_text(high)}), {seconds_text(report.seconds)}, "
             f"{report.throughput:,.0f} samples/s",
             f"the host adds: {seconds_text(report.host['call_seconds'])} for the call, "
             f"{seconds_text(report.host['stream_seconds'])} for streams"]
    if report.opaque_ops:
        names = sorted({row.op for row in report.opaque_ops})
        lines.append(f"operations without a rule, whose costs are bounds: {', '.join(names)}")
    return lines


def _ipus(report) -> list[str]:
    memory, line = report.tile_memory, report.timeline
    rows = [["IPU", "peak", "of limit", "mean", "waits"]]
    for ipu in sorted(memory.ipus, key=lambda ipu: -ipu.peak)[:_MOST_IPUS]:
        waits = f"{line.idle_share(ipu.ipu):.1%}" if ipu.ipu in line.ipus else "100.0%"
        rows.append([str(ipu.ipu), bytes_text(ipu.peak), f"{ipu.peak / memory.limit:.1%}",
                     bytes_text(ipu.mean), waits])
    return aligned(rows)


def _categories(report) -> list[str]:
    used = {name: count for name, count in report.memory.items() if count}
    return aligned([["memory of all tiles", ""],
                    *([name, bytes_text(count)] for name, count
                      in sorted(used.items(), key=lambda item: -item[1]))], left=1)


def _operations(report) -> list[str]:
    total = sum(row.cycles for row in report.ops)
    rows = [["operation", "cycles", "share", "used", "place"]]
    for row in slowest(report.ops, _MOST_OPS):
        where = " ".join(filter(None, (row.module, row.location and f"({row.location})")))
        rows.append([row.op, count_text(row.cycles), f"{row.cycles / total:.1%}",
                     f"{row.utilisation:.1%}", where])
    return aligned(rows, left=1)


def slowest(ops: list[OpRow], count: int) -> Iterator[OpRow]:
    """The operations that take cycles, the slowest first."""
    ranked = sorted(ops, key=lambda row: -row.cycles)[:count]
    return (row for row in ranked if row.cycles)
