"""From the blocks of a captured model and the execution strategy to the partition, checked."""

import functools

from poptorch._annotations.stages import Partition
from poptorch._base.logging import logger
from poptorch.enums import AutoStage, Recomputation, SyncPattern
from poptorch.errors import error_at, place_text

_SYNC = {SyncPattern.Full: "full", SyncPattern.SinglePipeline: "single_pipeline",
         SyncPattern.ReplicaAndLadder: "replica_and_ladder"}


def partition_of(captured, spec) -> Partition | None:
    """Where the blocks of a model run, checked against the rules of the strategy; None when it has
    none."""
    if not captured.blocks:
        _warn_of_stages(spec.strategy)
        return None
    _check_outside(captured, spec.strategy)
    partition = spec.strategy._partition(captured.blocks, _starts_outside(captured))
    _check_steps(captured, partition, spec)
    if partition.kind == "pipelined" and spec.strategy._is_by_ipu:
        _warn_of_order(captured, partition)
    if partition.stages > 1 and partition.kind != "sharded":
        _note_sequence(type(spec.strategy).__name__, partition.stages)
    return partition


@functools.cache
def _note_sequence(name: str, stages: int) -> None:
    logger.info("[%s] the host computes the %d stages one after another. timeline() shows when "
                "IPUs would run them.", name, stages)


def _warn_of_stages(strategy) -> None:
    """The stages of a strategy have no effect on a model without blocks."""
    named = ", ".join(f'"{block}"' for stage in strategy._all_stages() for block in stage.blocks)
    if named:
        logger.warning("[%s] the model has no blocks, but the stages of the strategy name %s: the "
                       "whole model runs on one IPU. Mark these blocks with poptorch.Block or "
                       "poptorch.BeginBlock.", type(strategy).__name__, named)


def _warn_of_order(captured, partition: Partition) -> None:
    """Stages by IPU form a pipeline only if the blocks never go back to an earlier one."""
    stages = {block.block: block.stage for block in partition.blocks}
    reached = 0
    for use in captured.blocks:
        if stages[use.user_id] < reached:
            _warn_once(use.user_id, reached, stages[use.user_id], place_text(use.place, use.module))
            return
        reached = stages[use.user_id]


@functools.cache
def _warn_once(block: str, before: int, stage: int, where: str) -> None:
    logger.warning('[PipelinedExecution] block "%s" goes back from stage %d to stage %d, so the '
                   "stages form no pipeline and run one after another. Use "
                   "PipelinedExecution(AutoStage.AutoIncrement), which begins a new stage wherever "
                   "the IPU changes.\n  at %s", block, before, stage, where)


def _forward_nodes(captured):
    return (node for node in captured.graph.nodes
            if node.op == "call_function" and not node.meta["backward"])


def _starts_outside(captured) -> bool:
    first = next(_forward_nodes(captured), None)
    return first is not None and first.meta["annotations"].get("block") is None


def _check_outside(captured, strategy) -> None:
    """With AutoIncrement everything has a block, once blocks have an end."""
    is_automatic = getattr(strategy, "_auto_stage", None) is AutoStage.AutoIncrement
    scoped = next((use for use in captured.blocks if use.is_scoped), None)
    if not is_automatic or scoped is None:
        return
    for node in _forward_nodes(captured):
        if node.meta["annotations"].get("block") is None and node.meta["place"] is not None:
            raise error_at(f"[{type(strategy).__name__}] No active Block: {node.target} runs "
                           f'outside of all blocks, as block "{scoped.user_id}" ends with its '
                           f"`with` statement; {AutoStage.AutoIncrement} has no stage for it. Put "
                           f"it into a block.", node.meta["place"], node.meta["module"])


def _check_steps(captured, partition: Partition, spec) -> None:
    least = spec.strategy._least_steps(partition.stages, spec.training)
    have, option = (spec.accumulation, "Training.gradientAccumulation") if spec.training else (
        spec.device_iterations, "deviceIterations")
    if have >= least:
        return
    last = max(partition.blocks, key=lambda block: block.stage)
    use = next(use for use in captured.blocks if use.user_id == last.block)
    name = type(spec.strategy).__name__
    backward = f" ({partition.stages} stages, forward and backward)" if spec.training else ""
    raise error_at(f"[{name}] poptorch.Options().{option} must be greater than or equal to the "
                   f"number of pipeline stages ({least}) when using poptorch.{name}, got {have}"
                   f"{backward}. Raise it, or choose poptorch.ShardedExecution. The last stage "
                   f'has block "{last.block}".', use.place, use.module)


def emit_strategy(e, partition: Partition | None, spec) -> None:
    """Appends the op ``strategy``: where each block runs (None: all is one stage), the IO tiles,
    which IPUs wait for one another, and whether stages recompute."""
    if partition is None and not spec.io_tiles:
        return
    partition = partition or Partition("sharded", ())
    rows = [[b.block, b.ipu, b.stage, b.phase] for b in partition.blocks]
    attrs = {"kind": partition.kind, "blocks": rows, "io_tiles": spec.io_tiles,
             "sync": _SYNC[spec.sync_pattern], **partition.attrs}
    outside = [partition.outside.ipu, partition.outside.stage, partition.outside.phase]
    if spec.recomputation is not Recomputation.Auto:
        attrs["recomputation"] = spec.recomputation.value
    if any(outside):
        attrs["outside"] = outside
    e.graph.op("strategy", [], attrs, [])
