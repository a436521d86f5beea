"""Cuts of a model into stages of about equal memory."""

import contextlib
from collections.abc import Iterator

import torch

from poptorch._annotations import block_class
from poptorch._reports.device.report import DeviceReport
from poptorch.blocks import BeginBlock, removeBlocks

# Their code is not in a call of their own.
_CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)


@contextlib.contextmanager
def begun(model: torch.nn.Module, blocks: dict[str, int] | None) -> Iterator[None]:
    """Meanwhile the modules of these paths begin blocks on these IPUs; None: as the user has it."""
    if blocks is None:
        yield
        return
    before = [(part, part._user_id, part._ipu_id) for part in model.modules()
              if block_class.begins_block(part)]
    removeBlocks(model)
    try:
        begin(model, blocks)
        yield
    finally:
        removeBlocks(model)
        for part, user_id, ipu_id in before:
            block_class.annotate(part, user_id, ipu_id)


def begin(model: torch.nn.Module, blocks: dict[str, int]) -> None:
    """Lets modules begin blocks, by path."""
    for path, ipu in blocks.items():
        BeginBlock(model.get_submodule(path), ipu_id=ipu)


def cut(model: torch.nn.Module, report: DeviceReport, count: int) -> dict[str, int] | None:
    """Paths of modules that begin blocks on ``count`` IPUs; None: there are too few modules.

    The program of ``report`` says in which order modules run, and which values they keep.
    """
    starts, found = _cut(model, report, count)
    if not found:
        return None
    return {starts[index]: ipu for ipu, index in enumerate(found, 1)}


def stages(model: torch.nn.Module, report: DeviceReport, count: int) -> dict[str, int] | None:
    """As :func:`cut`, and before them the first module that can begin a block, on IPU 0."""
    starts, found = _cut(model, report, count)
    if not starts or found is None or min(starts) in found or count > 1 and not found:
        return None
    return {starts[index]: ipu for ipu, index in enumerate([min(starts), *found])}


def _cut(model: torch.nn.Module, report: DeviceReport,
         count: int) -> tuple[dict[int, str], list[int] | None]:
    """Where blocks can begin, as of :func:`_starts`, and where those after the first begin, such
    that the largest stage is small; None: there are too few modules."""
    order, weights = _modules(model, report)
    starts = _starts(model, order)
    low, high = max(weights, default=0.0), sum(weights) + 1.0
    best = None
    for _ in range(40):  # halves the interval of the largest stage
        limit = (low + high) / 2
        found = _filled(weights, starts, limit)
        if found is not None and len(found) < count:
            best, high = found, limit
        else:
            low = limit
    return starts, best


def _modules(model: torch.nn.Module, report: DeviceReport) -> tuple[list[str], list[float]]:
    """The path of the module of each forward operation, and the bytes that it adds."""
    known = dict(model.named_modules())
    order = [row.module.rpartition("/")[2] for row in report.ops if row.part == "forward"]
    order = [path for path in order if path in known]
    first = {path: index for index, path in reversed(list(enumerate(order)))}
    weights = [0.0] * len(order)
    held = report.memory
    parameters = held["parameters"] or 1
    factor = (parameters + held["optimizer"] + held["accumulators"]) / parameters
    for path, index in first.items():
        weights[index] += factor * sum(p.numel() * p.element_size()
                                       for p in known[path].parameters(recurse=False))
    for value in (value for ipu in report.tile_memory.ipus for value in ipu.live_at_peak):
        index = first.get(value.module.rpartition("/")[2])
        if index is not None and value.category in ("activations", "stashes"):
            weights[index] += value.bytes
    return order, weights


def _starts(model: torch.nn.Module, order: list[str]) -> dict[int, str]:
    """Where a block can begin: the outermost module that begins at an operation, by position.

    Modules that run at several places of the program cannot begin one.
    """
    spans: dict[str, list[int]] = {}
    for index, path in enumerate(order):
        parts = path.split(".")
        for length in range(1, len(parts) + 1):
            spans.setdefault(".".join(parts[:length]), []).append(index)
    found: dict[int, str] = {}
    for path, span in spans.items():
        is_once = span[-1] - span[0] + 1 == len(span)
        if path and is_once and not isinstance(model.get_submodule(path), _CONTAINERS):
            found.setdefault(span[0], path)
    return found


def _filled(weights: list[float], starts: dict[int, str], limit: float) -> list[int] | None:
    """Positions of cuts such that no stage has more than ``limit``; None: there are none."""
    cuts, total, start, since = [], 0.0, None, 0.0
    for index, weight in enumerate(weights):
        if index in starts and index > 0:
            start, since = index, total
        total += weight
        if total > limit:
            if start is None:
                return None
            cuts.append(start)
            total, start = total - since, None
            if total > limit:
                return None
    return cuts
