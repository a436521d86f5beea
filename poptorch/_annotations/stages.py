"""Parts of a strategy: stages, phases, and the places that it gives to blocks."""

from dataclasses import dataclass, field

from poptorch._base.checks import at_least


@dataclass(frozen=True)
class BlockPlace:
    """Where one block runs. In phased execution ``stage`` is its number within the phase."""

    block: str
    ipu: int
    stage: int
    phase: int = 0


@dataclass(frozen=True)
class Partition:
    """What a strategy makes of the blocks of one model, in the order in which the model begins
    them.

    ``kind`` is the strategy's row in the compiler; operations before the first block, if there are
    any, run ``outside``.
    """

    kind: str
    blocks: tuple[BlockPlace, ...]
    outside: BlockPlace = BlockPlace("", 0, 0)
    starts_outside: bool = False
    attrs: dict = field(default_factory=dict)

    @property
    def stages(self) -> int:
        """The number of different stages that have something to run."""
        places = (*self.blocks, self.outside) if self.starts_outside else self.blocks
        return len({(place.phase, place.stage) for place in places})


def block_name(where: str, value) -> str:
    """The name of a block as text."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(f"[{where}] a block is named by a str (or an int), got "
                        f"{type(value).__name__} {value!r}.")
    if value == "":
        raise ValueError(f"[{where}] the name of a block is empty. Give the user_id of the block.")
    return str(value)


class Stage:
    """One or more blocks that run on one IPU.

    Args:
        block_ids: the ``user_id`` of each block, at least one.

    Raises:
        TypeError: An id is no str or int.
        ValueError: There is no id, one is empty, or one stands there twice.

    Example:
        >>> import poptorch
        >>> poptorch.Stage("embedding", "encoder").ipu(1)
        Stage('embedding', 'encoder').ipu(1)
    """

    def __init__(self, *block_ids: str):
        self._blocks = [block_name("Stage", block) for block in block_ids]
        self._ipu = None
        if not block_ids:
            raise ValueError("[Stage] expected at least one block id, got none.")
        check_once("Stage", self._blocks)

    @property
    def blocks(self) -> list[str]:
        """The ids of the blocks, in order.

        Example:
            >>> import poptorch
            >>> poptorch.Stage("A", "B").blocks
            ['A', 'B']
        """
        return list(self._blocks)

    def ipu(self, ipu: int) -> "Stage":
        """Sets the IPU on which the stage runs.

        Args:
            ipu: index of the IPU in the device, at least 0. Without a call it is the ``ipu_id``
                of the blocks, or follows from the strategy.

        Returns:
            This stage.

        Raises:
            TypeError: ``ipu`` is no int.
            ValueError: ``ipu`` is negative.

        Example:
            >>> import poptorch
            >>> poptorch.Stage("head").ipu(3)
            Stage('head').ipu(3)
        """
        self._ipu = at_least(0, ipu, "Stage.ipu ipu")
        return self

    def _plain(self) -> dict:
        return {"blocks": self.blocks, "ipu": self._ipu}

    @classmethod
    def _from_plain(cls, values: dict) -> "Stage":
        stage = cls(*values["blocks"])
        return stage if values["ipu"] is None else stage.ipu(values["ipu"])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None

    def __repr__(self) -> str:
        ipu = "" if self._ipu is None else f".ipu({self._ipu})"
        return f"Stage({', '.join(map(repr, self._blocks))}){ipu}"


class Phase:
    """Stages that run at the same time in phased execution.

    Args:
        arg: one or more stages; or the ids of one or more blocks, which form one stage.

    Raises:
        TypeError: An argument is neither, or both kinds are mixed.
        ValueError: There is no argument, or a block stands there twice.

    Example:
        >>> import poptorch
        >>> poptorch.Phase(poptorch.Stage("A").ipu(0), poptorch.Stage("B").ipu(1))
        Phase(Stage('A').ipu(0), Stage('B').ipu(1))
        >>> poptorch.Phase("A", "B")
        Phase(Stage('A', 'B'))
    """

    def __init__(self, *arg: "str | Stage"):
        if not arg:
            raise ValueError("[Phase] expected at least one stage or block id, got none.")
        if all(isinstance(item, Stage) for item in arg):
            self._stages = list(arg)
        elif any(isinstance(item, Stage) for item in arg):
            raise TypeError(f"[Phase] stages and block ids are mixed: {arg!r}. Give stages only, "
                            f"or block ids only.")
        else:
            self._stages = [Stage(*(block_name("Phase", item) for item in arg))]
        check_once("Phase", [block for stage in self._stages for block in stage.blocks])

    @property
    def stages(self) -> list[Stage]:
        """The stages, in order.

        Example:
            >>> import poptorch
            >>> len(poptorch.Phase(poptorch.Stage("A"), poptorch.Stage("B")).stages)
            2
        """
        return list(self._stages)

    def ipus(self, *ipus: int) -> "Phase":
        """Sets the IPU of each stage.

        Args:
            ipus: indices of IPUs, one for each stage, all different.

        Returns:
            This phase.

        Raises:
            TypeError: An index is no int.
            ValueError: One is negative or stands there twice, or their number is not that of the
                stages.

        Example:
            >>> import poptorch
            >>> poptorch.Phase(poptorch.Stage("A"), poptorch.Stage("B")).ipus(0, 2)
            Phase(Stage('A').ipu(0), Stage('B').ipu(2))
        """
        for ipu in ipus:
            at_least(0, ipu, "Phase.ipus ipu")
        if len(ipus) != len(self._stages):
            raise ValueError(f"[Phase.ipus] got {len(ipus)} IPUs for {len(self._stages)} stages. "
                             f"Give one IPU for each stage.")
        if len(set(ipus)) != len(ipus):
            raise ValueError(f"[Phase.ipus] one IPU stands there twice: {ipus}. The stages of a "
                             f"phase run at the same time, each on an IPU of its own.")
        for stage, ipu in zip(self._stages, ipus):
            stage.ipu(ipu)
        return self

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None

    def __repr__(self) -> str:
        return f"Phase({', '.join(map(repr, self._stages))})"


def check_once(where: str, blocks: list[str]) -> None:
    """Raises a ValueError when a block stands in the list more than once."""
    twice = sorted({block for block in blocks if blocks.count(block) > 1})
    if twice:
        raise ValueError(f"[{where}] a block belongs to one stage, but {', '.join(twice)} stands "
                         f"there more than once: {', '.join(blocks)}.")
