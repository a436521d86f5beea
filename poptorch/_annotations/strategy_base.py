"""What the execution strategies share: stages that hold blocks."""

import abc

from poptorch._annotations.annotations import BlockUse
from poptorch._annotations.stages import Stage, block_name
from poptorch._annotations.strategy_rows import _IExecutionStrategy
from poptorch.errors import Error, error_at


class _Strategy(_IExecutionStrategy, abc.ABC):
    """What all strategies share: stages that hold blocks.

    ``_partition(uses, starts_outside)`` makes the partition of a model that begins the blocks
    ``uses``, and computes something before the first of them or not.
    """

    def stage(self, block_id: str) -> Stage:
        """The stage that a block belongs to.

        Args:
            block_id: ``user_id`` of the block.

        Raises:
            TypeError: ``block_id`` is no str or int.
            poptorch.Error: No stage of the strategy holds the block.

        Example:
            >>> import poptorch
            >>> strategy = poptorch.PipelinedExecution("A", poptorch.Stage("B", "C"))
            >>> _ = strategy.stage("C").ipu(3)
            >>> strategy
            PipelinedExecution(Stage('A'), Stage('B', 'C').ipu(3))
        """
        name = block_name("stage", block_id)
        for stage in self._all_stages():
            if name in stage.blocks:
                return stage
        raise Error(self._unknown(name))

    def _unknown(self, block: str) -> str:
        known = [name for stage in self._all_stages() for name in stage.blocks]
        held = f"its stages hold {', '.join(known)}" if known else "it makes its stages itself"
        return (f'[{type(self).__name__}] block "{block}" is in no stage of the strategy: {held}. '
                f"Name the block in one of the stages.")

    @abc.abstractmethod
    def _all_stages(self) -> list[Stage]:
        """The stages that were given, in their order."""

    def _stage_of(self, use: BlockUse) -> Stage:
        for stage in self._all_stages():
            if use.user_id in stage.blocks:
                return stage
        raise error_at(self._unknown(use.user_id), use.place, use.module)

    def _ipu_of(self, stage: Stage, uses: tuple[BlockUse, ...], default: int) -> int:
        """The IPU that the stage or its blocks name; they must agree."""
        ipu = stage._ipu
        for use in uses:
            if use.user_id not in stage.blocks or use.ipu_id is None:
                continue
            if ipu is not None and ipu != use.ipu_id:
                raise error_at(f'[{type(self).__name__}] block "{use.user_id}" specifies IPU '
                               f"{use.ipu_id}, but its stage {stage!r} runs on IPU {ipu}. A stage "
                               f"runs on one IPU.", use.place, use.module)
            ipu = use.ipu_id
        return default if ipu is None else ipu


def first_uses(uses: tuple[BlockUse, ...]) -> list[BlockUse]:
    """Each block once, with the IPU that it names.

    Raises:
        poptorch.Error: A block names two IPUs.
    """
    first: dict[str, BlockUse] = {}
    for use in uses:
        known = first.setdefault(use.user_id, use)
        if use.ipu_id is None or known.ipu_id == use.ipu_id:
            continue
        if known.ipu_id is not None:
            raise error_at(f'[Block] block "{use.user_id}" was begun on IPU {known.ipu_id} and '
                           f"now on IPU {use.ipu_id}. Blocks of one name are one block: give "
                           f"them one IPU, or different names.", use.place, use.module)
        first[use.user_id] = use
    return list(first.values())
