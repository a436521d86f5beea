"""The changes that :func:`poptorch.fit` tries."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import torch

from poptorch._estimate.cuts import cut
from poptorch._reports.device.report import DeviceReport
from poptorch.enums import Recomputation
from poptorch.options import Options, TensorLocationSettings
from poptorch.strategies import PipelinedExecution, ShardedExecution

PROPORTIONS = (0.6, 0.3, 0.15, 0.05)
MOST_IPUS = 256


@dataclass(frozen=True)
class Plan:
    """Options and blocks, with the change that led to them.

    ``blocks`` is None where those of the model stay. ``text`` is the change as code, and ``change``
    applies it to another plan.
    """

    options: Options
    blocks: dict[str, int] | None = None
    text: str = ""
    change: "Callable[[Plan], Plan] | None" = field(default=None, compare=False)

    def changed(self, text: str, set_option: Callable[[Options], object],
                blocks: dict[str, int] | None = None) -> "Plan":
        """This plan with one more change."""
        options = self.options.clone()
        set_option(options)
        again = partial(Plan.changed, text=text, set_option=set_option, blocks=blocks)
        return Plan(options, self.blocks if blocks is None else blocks, text, again)


def changes_of(model: torch.nn.Module, plan: Plan, report: DeviceReport,
               training: bool) -> Iterator[Plan]:
    """The plans that are one change away; ``report`` is that of ``plan``."""
    ipus = len(report.tile_memory.ipus)
    yield from _proportion(plan, ipus)
    if training:
        yield from _recomputation(plan)
        yield from _off_chip(plan, "optimizer", "setOptimizerLocation")
        yield from _off_chip(plan, "activation", "setActivationLocation")
    yield from _micro_batch(plan, training)
    yield from _stages(model, plan, report, ipus)


def _proportion(plan: Plan, ipus: int) -> Iterator[Plan]:
    now = min(plan.options.available_memory_proportion.values(), default=PROPORTIONS[0])
    lower = next((value for value in PROPORTIONS if value < now), None)
    if lower is not None:
        names = {f"IPU{ipu}": lower for ipu in range(ipus)}
        which = names if ipus == 1 else f'{{f"IPU{{i}}": {lower} for i in range({ipus})}}'
        yield plan.changed(f"options.setAvailableMemoryProportion({which})",
                           lambda options: options.setAvailableMemoryProportion(names))


def _recomputation(plan: Plan) -> Iterator[Plan]:
    if plan.options.Training.recompute is not Recomputation.Stages:
        yield plan.changed(
            "options.Training.recomputation(poptorch.Recomputation.Stages)",
            lambda options: options.Training.recomputation(Recomputation.Stages))


def _off_chip(plan: Plan, what: str, setter: str) -> Iterator[Plan]:
    if getattr(plan.options.TensorLocations, f"location_{what}")["onChip"] is not False:
        yield plan.changed(
            f"options.TensorLocations.{setter}("
            f"poptorch.TensorLocationSettings().useOnChipStorage(False))",
            lambda options: getattr(options.TensorLocations, setter)(
                TensorLocationSettings().useOnChipStorage(False)))


def _micro_batch(plan: Plan, training: bool) -> Iterator[Plan]:
    """The same batch of a call in twice as many micro-batches."""
    if training:
        count = 2 * plan.options.Training.gradient_accumulation
        yield plan.changed(f"options.Training.gradientAccumulation({count})",
                           lambda options: options.Training.gradientAccumulation(count))
    else:
        count = 2 * plan.options.device_iterations
        yield plan.changed(f"options.deviceIterations({count})",
                           lambda options: options.deviceIterations(count))


def _stages(model: torch.nn.Module, plan: Plan, report: DeviceReport,
            ipus: int) -> Iterator[Plan]:
    """More IPUs, each time twice as many, in a pipeline and one after the other."""
    peak, limit = report.tile_memory.peak * ipus, report.tile_memory.limit
    count = 2 * ipus
    while 2 * count * limit < peak:
        count *= 2
    for number in (count, 2 * count, 4 * count):
        blocks = cut(model, report, number) if number <= MOST_IPUS else None
        if not blocks:
            return
        for strategy in (PipelinedExecution, ShardedExecution):
            begun = ", ".join(f"{path!r}: {ipu}" for path, ipu in blocks.items())
            yield plan.changed(
                f"options.setExecutionStrategy(poptorch.{strategy.__name__}()), blocks "
                f"{{{begun}}}", lambda options, strategy=strategy:
                options.setExecutionStrategy(strategy()), blocks)
