"""``poptorch.testing.assert_budget``."""

from collections.abc import Iterator
from operator import attrgetter

from poptorch._reports.device.report import DeviceReport

_SHOWN = 3


def assert_budget(report: DeviceReport, *, tile_peak_bytes: int | None = None,
                  cycles: float | None = None, opaque_ops: int | None = None) -> None:
    """Fails if a program needs more memory or time on the IPU than it may.

    Args:
        report: from :meth:`PoplarExecutor.report` or :func:`poptorch.estimate`.
        tile_peak_bytes: the most bytes on the fullest tile; None: any number.
        cycles: the most cycles of one step; None: any number.
        opaque_ops: the most operations that the model of the device has no rule for; None: any
            number.

    Raises:
        AssertionError: A budget is exceeded. The message has the value and the budget of each, and
            what contributes most, with module and ``file:line``.
        TypeError: No budget is given.

    Example:
        >>> import poptorch, torch
        >>> from poptorch import testing
        >>> report = poptorch.estimate(torch.nn.Linear(4, 2), poptorch.Options(), torch.ones(3, 4))
        >>> testing.assert_budget(report, tile_peak_bytes=400_000, opaque_ops=0)
        >>> testing.assert_budget(report, cycles=10)
        Traceback (most recent call last):
        AssertionError: [assert_budget] Linear, inference exceeds its budget. ...
    """
    if tile_peak_bytes is None and cycles is None and opaque_ops is None:
        raise TypeError("[assert_budget] expected a budget, got none. Give tile_peak_bytes, cycles "
                        "or opaque_ops.")
    lines: list[str] = []
    peak = report.tile_memory.peak
    if tile_peak_bytes is not None and peak > tile_peak_bytes:
        ipu = report.tile_memory.fullest
        lines += [f"tile_peak_bytes: {peak}, budget {tile_peak_bytes}. Largest values of IPU "
                  f"{ipu.ipu}, over all its tiles:",
                  *(f"  {value.bytes} bytes: {value.place}" for value in ipu.live_at_peak[:_SHOWN])]
    if cycles is not None and report.cycles > cycles:
        lines += [f"cycles: {report.cycles:.0f}, budget {cycles:.0f}. Slowest operations:",
                  *_slowest(report)]
    count = len(report.opaque_ops)
    if opaque_ops is not None and count > opaque_ops:
        lines += [f"opaque_ops: {count}, budget {opaque_ops}:",
                  *(f"  {row.place}" for row in report.opaque_ops[:_SHOWN])]
    if lines:
        raise AssertionError("\n".join([f"[assert_budget] {report.title} exceeds its budget. "
                                        f"Make these smaller, or raise the budget.", *lines]))


def _slowest(report: DeviceReport) -> Iterator[str]:
    for row in sorted(report.ops, key=attrgetter("cycles"), reverse=True)[:_SHOWN]:
        yield f"  {row.cycles:.0f} cycles: {row.place}"
