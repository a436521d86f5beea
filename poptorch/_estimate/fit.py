"""``poptorch.fit``."""

from dataclasses import dataclass, field
from typing import Any

import torch

from poptorch._estimate import cuts
from poptorch._estimate.changes import Plan, changes_of
from poptorch._estimate.estimate import estimate
from poptorch._reports.device.report import DeviceReport
from poptorch._reports.device.rows import place_of
from poptorch.errors import Error
from poptorch.executor import PoplarExecutor
from poptorch.options import Options
from poptorch.options._options import checked_options


@dataclass(frozen=True)
class Change:
    """One change of a :class:`Fit`.

    Attributes:
        text: what to change, as code.
        cycles: how many more cycles a step takes with this change, after the changes before it.
        tile_bytes: how many more bytes the fullest tile has; negative: fewer.
    """

    text: str
    cycles: float
    tile_bytes: int

    def __repr__(self) -> str:
        return f"{self.text}  ({self.cycles:+,.0f} cycles, {self.tile_bytes:+,} bytes)"


@dataclass(frozen=True, repr=False)
class Fit:
    """What :func:`fit` returns: changes that make a model fit, and the report with them.

    Attributes:
        fits: whether the model fits with the changes.
        changes: a :class:`Change` for each change, in the order in which they were tried; empty if
            the model fits without any, or nothing helps.
        options: a copy of the options with the changes.
        blocks: the IPU of each block that a module begins, by path of the module; None if the
            blocks of the model stay as they are.
        report: the report with the changes.

    Example:
        >>> import poptorch, torch
        >>> found = poptorch.fit(torch.nn.Linear(4, 2), poptorch.Options(), torch.ones(3, 4))
        >>> found.fits, found.changes, found.blocks
        (True, [], None)
    """

    fits: bool
    changes: list[Change]
    options: Options
    blocks: dict[str, int] | None
    report: DeviceReport
    _largest: str = field(default="")

    def apply(self, model: torch.nn.Module) -> None:
        """Replaces the blocks of a model by :attr:`blocks`. Does nothing if they stay.

        Args:
            model: the one that :func:`fit` was called with.

        Example:
            >>> import poptorch, torch
            >>> net = torch.nn.Linear(4, 2)
            >>> poptorch.fit(net, poptorch.Options(), torch.ones(3, 4)).apply(net)
        """
        if self.blocks is not None:
            cuts.removeBlocks(model)
            cuts.begin(model, self.blocks)

    def __repr__(self) -> str:
        memory = self.report.tile_memory
        full = f"the fullest tile has {memory.peak:,} of {memory.limit:,} bytes"
        lines = [f"fits: {full}" if self.fits else f"does not fit: {full}"]
        if not self.fits:
            lines.append(f"largest contributor: {self._largest}")
        lines += [f"  {change!r}" for change in self.changes] or ["  no change"]
        return "\n".join(lines)


def fit(model: torch.nn.Module, options: Options, *inputs: Any,
        optimizer: torch.optim.Optimizer | None = None, **named: Any) -> Fit:
    """Finds a few changes that make a model fit the tiles of IPUs.

    The changes are: a lower proportion of memory for temporary values, recomputation, states of
    the optimizer or activations in streaming memory, smaller micro-batches and more IPUs. The
    search adds the change that helps most until the model fits, then leaves out what is not needed.
    It prefers few changes, then few IPUs, then few cycles. Each result comes from :func:`estimate`.
    Blocks that ``forward`` itself begins, with :class:`poptorch.Block`, stay where they are.
    The model, the options and the optimizer stay as they are.

    Args:
        model, options, inputs, optimizer, named: as for :func:`estimate`.

    Returns:
        The changes, and the report with them. ``print`` shows them as text.

    Raises:
        TypeError, poptorch.Error: as :func:`estimate`.

    Example:
        >>> import poptorch, torch
        >>> net = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192, dtype=torch.float16,
        ...                                             device="meta") for _ in range(8)])
        >>> x = torch.zeros(16, 8192, dtype=torch.float16)
        >>> opts = poptorch.Options().deviceIterations(4)
        >>> found = poptorch.fit(net, opts, x)
        >>> found.fits, found.blocks
        (True, {'4': 1})
    """
    if isinstance(model, PoplarExecutor):
        model = model.model
    options = checked_options(options, "fit")
    search = _Search(model, inputs, named, optimizer)
    chosen = search.reduced(search.greedy(Plan(options.clone())))
    return search.result(chosen)


class _Search:
    """Plans that were tried, in order; each is the one before it with one more change."""

    def __init__(self, model, inputs: tuple, named: dict, optimizer):
        self._model, self._inputs, self._named = model, inputs, named
        self._optimizer = optimizer

    def report(self, plan: Plan) -> DeviceReport:
        """The report of the model under a plan. An Error if it cannot be compiled so."""
        with cuts.begun(self._model, plan.blocks):
            return estimate(self._model, plan.options, *self._inputs, optimizer=self._optimizer,
                            **self._named)

    def greedy(self, first: Plan) -> list[tuple[Plan, DeviceReport]]:
        """Adds the best change until the model fits, or no change helps."""
        steps = [(first, self.report(first))]
        while not steps[-1][1].fits:
            plan, report = steps[-1]
            tried = []
            for after in changes_of(self._model, plan, report, self._optimizer is not None):
                found = self._tried(after)
                if found is not None and _excess(found) < _excess(report):
                    tried.append((after, found))
            if not tried:
                return steps
            steps.append(min(tried, key=lambda pair: _rank(pair[1])))
        return steps

    def _tried(self, plan: Plan) -> DeviceReport | None:
        try:
            return self.report(plan)
        except Error:  # options that contradict one another
            return None

    def reduced(self, steps: list) -> list:
        """The steps without changes that are not needed."""
        if not steps[-1][1].fits:
            return steps
        index = 1
        while index < len(steps) - 1:
            without = self._replayed(steps[0], [p.change for p, _ in steps[1:index]]
                                     + [p.change for p, _ in steps[index + 1:]])
            if without is not None and without[-1][1].fits:
                steps = without
            else:
                index += 1
        return steps

    def _replayed(self, first: tuple, changes: list) -> list | None:
        steps = [first]
        for change in changes:
            plan = change(steps[-1][0])
            report = self._tried(plan)
            if report is None:
                return None
            steps.append((plan, report))
        return steps

    def result(self, steps: list) -> Fit:
        plan, report = steps[-1]
        changes = [Change(after.text, found.cycles - known.cycles,
                          found.tile_memory.peak - known.tile_memory.peak)
                   for (_, known), (after, found) in zip(steps, steps[1:])]
        return Fit(report.fits, changes, plan.options, plan.blocks, report, _largest(report))


def _excess(report: DeviceReport) -> float:
    """Bytes over the limit, of the fullest tile of each IPU."""
    limit = report.tile_memory.limit
    return max(max(0, ipu.peak - limit) for ipu in report.tile_memory.ipus)


def _rank(report: DeviceReport) -> tuple:
    ipus = len(report.tile_memory.ipus)
    return (0, ipus, report.cycles) if report.fits else (1, _excess(report), report.cycles)


def _largest(report: DeviceReport) -> str:
    """What has most bytes where the peak is."""
    ipu = report.tile_memory.fullest
    step = max(ipu.steps, key=lambda step: step.temporary, default=None)
    value = ipu.live_at_peak[0] if ipu.live_at_peak else None
    if value is not None and (step is None or value.bytes >= step.temporary):
        return f"{value.place}, {value.category}, {value.bytes:,} bytes on IPU {ipu.ipu}"
    if step is None:
        return f"IPU {ipu.ipu}"
    return (f"{place_of(step.op, step.module, step.location)}, temporary, "
            f"{step.temporary:,} bytes on IPU {ipu.ipu}")
