"""Execution strategies: which stage, phase and IPU each block of a model is given.

A strategy is set with ``Options.setExecutionStrategy`` and asked once, when the model is compiled.
"""

from typing import Self

from poptorch._annotations.annotations import BlockUse
from poptorch._annotations.stages import BlockPlace, Partition, Phase, Stage, block_name, check_once
from poptorch._annotations.strategy_base import _Strategy, first_uses
from poptorch._base.checks import Bool, Int, one_of
from poptorch.enums import AutoStage, Liveness, PipelineSchedule
from poptorch.errors import Error


class _StagedExecution(_Strategy):
    """Stages that run one after the other, listed or made by an :class:`AutoStage`."""

    def __init__(self, *args: "AutoStage | str | Stage"):
        name = type(self).__name__
        self._auto_stage = AutoStage.SameAsIpu
        self._stages: list[Stage] = []
        if len(args) == 1 and isinstance(args[0], list | tuple):
            args = tuple(args[0])
        if len(args) == 1 and isinstance(args[0], AutoStage):
            self._auto_stage = args[0]
            return
        for arg in args:
            if isinstance(arg, AutoStage | Phase):
                raise TypeError(f"[{name}] expected one AutoStage, or stages and block ids, got "
                                f"{args!r}.")
            self._stages.append(arg if isinstance(arg, Stage) else Stage(block_name(name, arg)))
        check_once(name, [block for stage in self._stages for block in stage.blocks])

    def _all_stages(self) -> list[Stage]:
        return self._stages

    @property
    def _is_by_ipu(self) -> bool:
        """Whether the blocks of one IPU are a stage."""
        return not self._stages and self._auto_stage is AutoStage.SameAsIpu

    def _plain(self) -> dict:
        return {"kind": self._kind, "auto_stage": self._auto_stage.value,
                "stages": [stage._plain() for stage in self._stages]}

    @classmethod
    def _from_plain(cls, values: dict) -> "_StagedExecution":
        stages = map(Stage._from_plain, values["stages"])
        return cls(*stages) if values["stages"] else cls(AutoStage(values["auto_stage"]))

    def _partition(self, uses: tuple[BlockUse, ...], starts_outside: bool) -> Partition:
        blocks = first_uses(uses)
        if not self._stages:
            places = tuple(self._automatic(blocks, starts_outside))
            return Partition(self._kind, places, starts_outside=starts_outside,
                             attrs=self._attrs())
        ipus = [self._ipu_of(stage, uses, number) for number, stage in enumerate(self._stages)]
        numbers = [self._stages.index(self._stage_of(use)) for use in blocks]
        places = [BlockPlace(use.user_id, ipus[number], number)
                  for use, number in zip(blocks, numbers)]
        return Partition(self._kind, tuple(places), BlockPlace("", ipus[0], 0), starts_outside,
                         self._attrs())

    def _attrs(self) -> dict:
        """More attributes of the op ``strategy``."""
        return {}

    def _automatic(self, blocks: list[BlockUse], starts_outside: bool):
        # What runs before the first block is on IPU 0, in stage 0.
        increments = self._auto_stage is AutoStage.AutoIncrement
        stage, last = 0, 0 if starts_outside else None
        for use in blocks:
            ipu = use.ipu_id
            if ipu is None:
                ipu = 0 if last is None else last + increments
            if not increments:
                stage = ipu
            elif last is not None and ipu != last:
                stage += 1
            last = ipu
            yield BlockPlace(use.user_id, ipu, stage)

    def __repr__(self) -> str:
        words = map(repr, self._stages) if self._stages else [str(self._auto_stage)]
        return f"{type(self).__name__}({', '.join(words)})"


class ShardedExecution(_StagedExecution):
    """The stages run one after the other, each on its IPU; no two at the same time.

    Args:
        args: nothing or an :class:`AutoStage`, which makes the stages of the blocks' ``ipu_id``
            (default ``AutoStage.SameAsIpu``); or the stages, in order, as :class:`Stage` objects
            or block ids (each a stage of its own).

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: A block stands in two stages.

    Example:
        >>> import poptorch
        >>> opts = poptorch.Options()
        >>> opts.setExecutionStrategy(poptorch.ShardedExecution("A", "B"))
        Options(execution_strategy=ShardedExecution(Stage('A'), Stage('B')))
    """

    _kind = "sharded"


class PipelinedExecution(_StagedExecution):
    """The stages form a pipeline: while one works on a micro-batch the next has the one before.

    Inference needs as many device iterations as stages, training with S stages a gradient
    accumulation of at least 2 S - 1. This is the strategy of a model with blocks when none is set.

    Args:
        args: nothing or an :class:`AutoStage`, which makes the stages of the blocks' ``ipu_id``
            (default ``AutoStage.SameAsIpu``); or the stages, in order, as :class:`Stage` objects
            or block ids (each a stage of its own).

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: A block stands in two stages.

    Example:
        >>> import poptorch
        >>> poptorch.PipelinedExecution(poptorch.Stage("A", "B"), poptorch.Stage("C", "D"))
        PipelinedExecution(Stage('A', 'B'), Stage('C', 'D'))
        >>> poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement)
        PipelinedExecution(AutoStage.AutoIncrement)
    """

    _kind = "pipelined"

    def __init__(self, *args: "AutoStage | str | Stage"):
        super().__init__(*args)
        self._schedule = PipelineSchedule.Grouped

    def schedule(self, schedule: PipelineSchedule) -> Self:
        """Sets the order in which stages run micro-batches. Results do not depend on it.

        Args:
            schedule: see :class:`poptorch.PipelineSchedule`; the default is
                ``PipelineSchedule.Grouped``.

        Returns:
            This strategy.

        Raises:
            TypeError: Not a PipelineSchedule.

        Example:
            >>> import poptorch
            >>> strategy = poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement)
            >>> strategy.schedule(poptorch.PipelineSchedule.FillDrain)
            PipelinedExecution(AutoStage.AutoIncrement).schedule(PipelineSchedule.FillDrain)
        """
        self._schedule = one_of(PipelineSchedule, schedule, "PipelinedExecution.schedule")
        return self

    def _attrs(self) -> dict:
        is_default = self._schedule is PipelineSchedule.Grouped
        return {} if is_default else {"schedule": self._schedule.value}

    def _plain(self) -> dict:
        return {**super()._plain(), "schedule": self._schedule.value}

    @classmethod
    def _from_plain(cls, values: dict) -> "PipelinedExecution":
        schedule = values.get("schedule", PipelineSchedule.Grouped.value)  # files before it
        return super()._from_plain(values).schedule(PipelineSchedule(schedule))

    def __repr__(self) -> str:
        is_default = self._schedule is PipelineSchedule.Grouped
        return super().__repr__() + f".schedule({self._schedule})" * (not is_default)

    def _least_steps(self, stages: int, training: bool) -> int:
        return 2 * stages - 1 if training else stages


class _PhasedExecution(_Strategy):
    """Phases that run one after the other, with tensors off the chip in between."""

    def __init__(self, *phases: "Phase | list[Stage] | list[str]"):
        name = type(self).__name__
        if len(phases) == 1 and isinstance(phases[0], list | tuple) and phases[0] and all(
                isinstance(item, Phase | list | tuple) for item in phases[0]):
            phases = tuple(phases[0])
        if not phases:
            raise ValueError(f"[{name}] expected at least one phase, got none.")
        self._phases = [_as_phase(name, phase) for phase in phases]
        self._separate_backward = False
        check_once(name, [block for stage in self._all_stages() for block in stage.blocks])

    def _all_stages(self) -> list[Stage]:
        return [stage for phase in self._phases for stage in phase.stages]

    def phase(self, phase: int) -> Phase:
        """One of the phases.

        Args:
            phase: its number, from 0.

        Raises:
            TypeError: ``phase`` is no int.
            ValueError: There is no such phase.

        Example:
            >>> import poptorch
            >>> strategy = poptorch.SerialPhasedExecution(poptorch.Phase("A"), poptorch.Phase("B"))
            >>> strategy.phase(1).ipus(0)
            Phase(Stage('B').ipu(0))
        """
        return self._phases[Int(0, len(self._phases) - 1)(phase, "phase")]

    def useSeparateBackwardPhase(self, use: bool = True) -> Self:
        """Chooses whether the backward pass begins in a phase of its own.

        Of P forward phases, the backward pass of phase p is phase ``2 (P - 1) - p``: the last
        forward phase is the first of the backward pass. With a separate backward phase it is
        ``2 P - p``. Phase ``P`` is left out: a phase and its way back are both even or both odd.

        Args:
            use: True for a phase of its own.

        Returns:
            This strategy.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> poptorch.SerialPhasedExecution("A", "B").useSeparateBackwardPhase()
            SerialPhasedExecution(Phase(Stage('A')), Phase(Stage('B'))).useSeparateBackwardPhase()
        """
        self._separate_backward = Bool()(use, "useSeparateBackwardPhase")
        return self

    def _plain(self) -> dict:
        phases = [[stage._plain() for stage in phase.stages] for phase in self._phases]
        return {"kind": self._kind, "phases": phases, "separate_backward": self._separate_backward}

    @classmethod
    def _from_plain(cls, values: dict) -> "_PhasedExecution":
        phases = (Phase(*map(Stage._from_plain, stages)) for stages in values["phases"])
        return cls(*phases).useSeparateBackwardPhase(values["separate_backward"])

    def _default_ipu(self, phase: int, stage: int) -> int:
        return stage

    def _check_phase(self, phase: int, ipus: dict[int, Stage]) -> None:
        """Refuses IPUs on which this phase cannot run."""

    def _partition(self, uses: tuple[BlockUse, ...], starts_outside: bool) -> Partition:
        ipus = {}
        for number, phase in enumerate(self._phases):
            taken: dict[int, Stage] = {}
            for index, stage in enumerate(phase.stages):
                ipu = self._ipu_of(stage, uses, self._default_ipu(number, index))
                if ipu in taken:
                    raise Error(f"[{type(self).__name__}] phase {number} has two stages on IPU "
                                f"{ipu}: {taken[ipu]!r} and {stage!r}. The stages of a phase run "
                                f"at the same time: give each its IPU with phase({number}).ipus.")
                taken[ipu] = stage
                ipus[id(stage)] = (number, index, ipu)
            self._check_phase(number, taken)
        places = []
        for use in first_uses(uses):
            number, index, ipu = ipus[id(self._stage_of(use))]
            places.append(BlockPlace(use.user_id, ipu, index, number))
        outside = BlockPlace("", ipus[id(self._phases[0].stages[0])][2], 0)
        return Partition(self._kind, tuple(places), outside, starts_outside, self._attrs())

    def _attrs(self) -> dict:
        return {"phases": len(self._phases), "separate_backward": self._separate_backward}

    def __repr__(self) -> str:
        separate = ".useSeparateBackwardPhase()" if self._separate_backward else ""
        return f"{type(self).__name__}({', '.join(map(repr, self._phases))}){separate}"


def _as_phase(where: str, value) -> Phase:
    if isinstance(value, Phase):
        return value
    if isinstance(value, list | tuple):
        return Phase(*value)
    if isinstance(value, str | Stage):
        return Phase(value)
    raise TypeError(f"[{where}] expected phases, or lists of stages or of block ids, got "
                    f"{type(value).__name__} {value!r}.")


class SerialPhasedExecution(_PhasedExecution):
    """The phases run one after the other on one group of IPUs.

    Weights, optimizer state and accumulated gradients are kept in streaming memory and come to the
    chip phase by phase, unless ``Options.TensorLocations`` says otherwise;
    :meth:`setTensorsLiveness` says what happens to activations between phases.

    Args:
        phases: the phases in order, each a :class:`Phase`, a list of :class:`Stage` objects, or a
            list of block ids (one stage); one after the other, or in one list. A stage without
            an IPU is on the IPU with its number in the phase.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: There is no phase, or a block stands in two stages.

    Example:
        >>> import poptorch
        >>> strategy = poptorch.SerialPhasedExecution([
        ...     poptorch.Phase(poptorch.Stage("A"), poptorch.Stage("A2")),
        ...     poptorch.Phase(poptorch.Stage("B"), poptorch.Stage("B2"))])
        >>> _ = strategy.phase(0).ipus(0, 1)
        >>> strategy.phase(0)
        Phase(Stage('A').ipu(0), Stage('A2').ipu(1))
    """

    _kind = "serial_phased"

    def __init__(self, *phases: "Phase | list[Stage] | list[str]"):
        super().__init__(*phases)
        self._liveness = Liveness.AlwaysLive

    def setTensorsLiveness(self, liveness: Liveness) -> "SerialPhasedExecution":
        """Sets where activations are between phases.

        Phases that transfers need are left free: with ``OffChipAfterFwdNoOverlap`` the phases of
        the model have even numbers, with ``OffChipAfterEachPhase`` multiples of 4.

        Args:
            liveness: see :class:`poptorch.Liveness`; the default is ``Liveness.AlwaysLive``.

        Returns:
            This strategy.

        Raises:
            TypeError: Not a Liveness.

        Example:
            >>> import poptorch
            >>> strategy = poptorch.SerialPhasedExecution("A")
            >>> strategy.setTensorsLiveness(poptorch.Liveness.OffChipAfterFwd)
            SerialPhasedExecution(Phase(Stage('A'))).setTensorsLiveness(Liveness.OffChipAfterFwd)
        """
        self._liveness = one_of(Liveness, liveness, "setTensorsLiveness")
        return self

    def _plain(self) -> dict:
        return {**super()._plain(), "liveness": self._liveness.value}

    @classmethod
    def _from_plain(cls, values: dict) -> "SerialPhasedExecution":
        return super()._from_plain(values).setTensorsLiveness(Liveness(values["liveness"]))

    def _attrs(self) -> dict:
        return {**super()._attrs(), "liveness": _LIVENESS[self._liveness]}

    def __repr__(self) -> str:
        is_default = self._liveness is Liveness.AlwaysLive
        return super().__repr__() + f".setTensorsLiveness({self._liveness})" * (not is_default)


_LIVENESS = {
    Liveness.AlwaysLive: "always_live",
    Liveness.OffChipAfterFwd: "off_chip_after_fwd",
    Liveness.OffChipAfterFwdNoOverlap: "off_chip_after_fwd_no_overlap",
    Liveness.OffChipAfterEachPhase: "off_chip_after_each_phase",
}


class ParallelPhasedExecution(_PhasedExecution):
    """The phases alternate between two groups of IPUs: even ones and odd ones.

    While one group computes a phase, the other stores what it made and loads what it needs next.

    Args:
        phases: as in :class:`SerialPhasedExecution`. A stage without an IPU is on the IPU with
            twice its number in the phase, plus 1 in odd phases.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: There is no phase, or a block stands in two stages.

    Example:
        >>> import poptorch
        >>> strategy = poptorch.ParallelPhasedExecution(
        ...     [poptorch.Stage("0"), poptorch.Stage("1")],
        ...     [poptorch.Stage("2"), poptorch.Stage("3")])
        >>> strategy.phase(1).ipus(1, 3)
        Phase(Stage('2').ipu(1), Stage('3').ipu(3))
    """

    _kind = "parallel_phased"

    def _default_ipu(self, phase: int, stage: int) -> int:
        return phase % 2 + 2 * stage

    def _check_phase(self, phase: int, ipus: dict[int, Stage]) -> None:
        for ipu, stage in ipus.items():
            if ipu % 2 != phase % 2:
                kinds = ("even", "odd")
                raise Error(f"[ParallelPhasedExecution] phase {phase} has {stage!r} on IPU {ipu}: "
                            f"{kinds[phase % 2]} phases run on {kinds[phase % 2]} IPUs. Choose "
                            f"them with phase({phase}).ipus.")
