"""General options, first part: what a call computes and returns."""

import warnings
from typing import Self

import torch

from poptorch._annotations.strategy_rows import _IExecutionStrategy, from_plain
from poptorch._base.checks import (
    COUNT,
    Bool,
    Check,
    Int,
    Member,
    Number,
    OrNone,
    Proportions,
    Text,
    Texts,
)
from poptorch.enums import CommGroupType, OutputMode
from poptorch.options._group import OptionGroup
from poptorch.options._row import option, row

_PERIOD = Int(1)


class _Anchors(Check):
    """``{short name: (name of a tensor, OutputMode or None, period)}``."""

    text = "a dict from names to (name of a tensor, OutputMode or None, period)"

    def __call__(self, value, option: str) -> dict:
        if not isinstance(value, dict) or not all(
                isinstance(entry, tuple) and len(entry) == 3 for entry in value.values()):
            raise self.wrong_type(value, option)
        for short_name, (long_name, mode, period) in value.items():
            Text()(short_name, f"{option} short_name")
            Text()(long_name, f"{option} long_name")
            OrNone(Member(OutputMode))(mode, f"{option} output_mode")
            _PERIOD(period, f"{option} output_return_period")
        return value

    def load(self, value) -> dict:
        """The dict with members and tuples again."""
        return {short: (long, OrNone(Member(OutputMode)).load(mode), period)
                for short, (long, mode, period) in value.items()}


class _Strategy(Check):
    """An execution strategy."""

    text = "an execution strategy such as poptorch.PipelinedExecution()"
    errors = (TypeError,)
    kinds = (_IExecutionStrategy,)

    def load(self, value) -> _IExecutionStrategy:
        """The strategy again."""
        return value if isinstance(value, _IExecutionStrategy) else from_plain(value)


class Execution(OptionGroup, part_of="Options"):
    """The options about loops, replicas, results, random numbers and the strategy."""

    @option("device_iterations", 1, COUNT, example=16, step="device_iterations")
    def deviceIterations(self, device_iterations: int) -> Self:
        """Sets how many steps the device runs for each call, without coming back to the host.

        Args:
            device_iterations: steps, 1 (the default) to 2**31 - 1. The first dimension of each
                input is ``device_iterations * gradient_accumulation * replication_factor *
                micro_batch``.
        """

    @option("replication_factor", 1, COUNT, example=2, backend="replicatedGraphCount",
            step="replicas", compiler="replicas")
    def replicationFactor(self, replication_factor: int) -> Self:
        """Sets how many replicas of the model share the work, each on its part of the batch.

        Gradients are combined over the replicas before each weight update, see
        ``Training.accumulationAndReplicationReductionType``.

        Args:
            replication_factor: replicas, 1 (the default) to 2**31 - 1.
        """

    @row("input_group_size", 1, Int(1), doc="Replicas that get the same part of the input.",
         step="input_group_size", compiler="input_group_size")
    @row("input_group_type", CommGroupType.Consecutive, Member(CommGroupType, (CommGroupType.All,)),
         doc="Which replicas form these groups.")
    def inputReplicaGrouping(self, input_group_size: int = 1,
                             input_group_type: CommGroupType = CommGroupType.Consecutive
                             ) -> Self:
        """Lets groups of replicas work on the same part of the input.

        With R replicas in groups of g, the first dimension of each input shrinks by g.

        Args:
            input_group_size: g, at least 1 (the default: all replicas get different data); a
                divisor of the replication factor.
            input_group_type: which replicas form a group: ``Consecutive`` (the default),
                ``Orthogonal``, or ``NoGrouping``, which is the same as a size of 1. To give all
                replicas the same, use a group size of ``replication_factor``.

        Example:
            >>> import poptorch
            >>> options = poptorch.Options().replicationFactor(4)
            >>> options.inputReplicaGrouping(2, poptorch.CommGroupType.Orthogonal)
            Options(replication_factor=4, input_group_size=2, input_group_type=Orthogonal)
        """
        self._row("input_group_size").check(input_group_size, "inputReplicaGrouping")
        self._row("input_group_type").check(input_group_type, "inputReplicaGrouping")
        if input_group_type is CommGroupType.NoGrouping:
            input_group_size = 1
        self._set("input_group_size", input_group_size)
        return self._set("input_group_type", input_group_type)

    def _check_together(self) -> None:
        super()._check_together()
        if self.input_group_type is CommGroupType.NoGrouping and self.input_group_size != 1:
            raise ValueError(f"[inputReplicaGrouping] expected a group size of 1 with "
                             f"CommGroupType.NoGrouping, got {self.input_group_size}. Change one "
                             f"of the two.")

    @row("output_mode", OutputMode.Default, Member(OutputMode), doc="Which results a call returns.")
    @row("output_return_period", 1, _PERIOD, doc="N of OutputMode.EveryN.")
    def outputMode(self, output_mode: OutputMode,
                   output_return_period: int | None = None) -> Self:
        """Sets which of the results of a call are returned.

        Args:
            output_mode: see :class:`poptorch.OutputMode`. ``Default`` is ``All`` for inference
                and ``Final`` for training.
            output_return_period: N of ``OutputMode.EveryN``, at least 1, a divisor of
                ``device_iterations``; ignored in other modes.

        Raises:
            TypeError: Not an OutputMode, or the period is not an int.
            ValueError: ``EveryN`` without a period, or a period less than 1.

        Example:
            >>> import poptorch
            >>> poptorch.Options().outputMode(poptorch.OutputMode.EveryN, 10)
            Options(output_mode=EveryN, output_return_period=10)
        """
        self._row("output_mode").check(output_mode, "outputMode")
        period = 1
        if output_mode is OutputMode.EveryN:
            if output_return_period is None:
                raise ValueError("[outputMode] OutputMode.EveryN needs output_return_period, got "
                                 "None. Pass a period of at least 1.")
            period = _PERIOD(output_return_period, "outputMode")
        self._set("output_mode", output_mode)
        return self._set("output_return_period", period)

    def anchorMode(self, anchor_mode: OutputMode,
                   anchor_return_period: int | None = None) -> Self:
        """The name of :meth:`outputMode` in releases of 2020; deprecated.

        Args:
            anchor_mode: as ``output_mode``.
            anchor_return_period: as ``output_return_period``.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: As :meth:`outputMode`.
            ValueError: As :meth:`outputMode`.

        Example:
            >>> import poptorch, warnings
            >>> with warnings.catch_warnings(action="ignore"):
            ...     poptorch.Options().anchorMode(poptorch.AnchorMode.All)
            Options(output_mode=All)
        """
        warnings.warn("[anchorMode] is the old name of outputMode and will be removed: call "
                      "options.outputMode.", DeprecationWarning, stacklevel=2)
        return self.outputMode(anchor_mode, anchor_return_period)

    def defaultOutputMode(self) -> bool:
        """Returns True while the output mode is ``OutputMode.Default``.

        Example:
            >>> import poptorch
            >>> poptorch.Options().defaultOutputMode()
            True
        """
        return self.output_mode is OutputMode.Default

    @row("anchored_tensors", {}, _Anchors())
    def anchorTensor(self, short_name: str, long_name: str,
                     output_mode: OutputMode | None = None,
                     output_return_period: int | None = 1) -> Self:
        """Keeps the values of a tensor of the model, to read with ``getAnchoredTensor``.

        Args:
            short_name: the name to read it by.
            long_name: its name in ``executor.getTensorNames()``.
            output_mode: which of its values are kept; None (the default): as for the results.
                ``Default`` is ``All`` for inference and ``Final`` for training.
            output_return_period: N of ``OutputMode.EveryN``, at least 1, the default.

        Raises:
            TypeError: A name is not a str, the mode no OutputMode or the period no int.
            ValueError: A name is empty, or the period is less than 1.

        Example:
            >>> import poptorch
            >>> poptorch.Options().anchorTensor("grad", "Gradient___fc.weight").anchored_tensors
            {'grad': ('Gradient___fc.weight', None, 1)}
        """
        Text()(short_name, "anchorTensor short_name")
        period = output_return_period if output_mode is OutputMode.EveryN else 1
        anchored = {**self.anchored_tensors, short_name: (long_name, output_mode, period)}
        return self._set("anchored_tensors", anchored)

    @row("random_seed", None, Int(-2**63, 2**64 - 1), example=42,
         default_text="None: torch chooses the seed")
    def randomSeed(self, random_seed: int) -> Self:
        """Sets the seed of the device's random generator, and of torch's on the host.

        Two executors of one model with one seed give the same numbers.

        Args:
            random_seed: any int of 64 bits.
        """
        self._set("random_seed", random_seed)
        torch.manual_seed(random_seed)
        return self

    @option("enable_synthetic_data", False, Bool(), step="synthetic_data")
    def enableSyntheticData(self, enabled: bool) -> Self:
        """Makes the input on the device and transfers nothing, to measure a model without I/O.

        Args:
            enabled: True: arguments only give shapes; inputs are N(0, 1), or 0 for integers, and
                the results are zeros of the right shape. Weights do train. False: the default.
        """

    @option("broadcast_buffers", True, Bool())
    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Self:
        """Chooses whether replicas share the values of buffers that ``forward`` changes.

        Args:
            broadcast_buffers: True, the default: they share them, and a model that changes a buffer
                on more than one replica is an error. False: each replica has its own.
        """

    @option("updatable_named_buffers", [], Texts(), example=["bn.running_mean"],
            backend="updatableNamedBuffers")
    def updatableNamedBuffers(self, buffers: list[str]) -> Self:
        """Names the buffers that ``executor.copyNamedBuffersToDevice()`` copies.

        Args:
            buffers: dotted paths, as in ``module.named_buffers()``; default: none.
        """

    @option("relax_optimizer_attributes_checks", False, Bool())
    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Self:
        """Chooses at which log level ``setOptimizer`` reports attributes that it does not use.

        Args:
            relax: True: at level DEBUG. False, the default: as a warning.
        """

    @option("execution_strategy", None, _Strategy(),
            default_text="`PipelinedExecution(AutoStage.SameAsIpu)`")
    def setExecutionStrategy(self, strategy: _IExecutionStrategy) -> Self:
        """Sets how the blocks of a model become stages and phases on IPUs.

        Args:
            strategy: one such as :class:`poptorch.PipelinedExecution` (the default, with
                ``AutoStage.SameAsIpu``). A model without blocks runs on one IPU whatever it is.

        Example:
            >>> import poptorch
            >>> poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution())
            Options(execution_strategy=ShardedExecution(AutoStage.SameAsIpu))
        """

    @option("available_memory_proportion", {}, Proportions(), example={"IPU0": 0.5})
    def setAvailableMemoryProportion(
            self,
            available_memory_proportion: dict[str, float] | dict[int, float]) -> Self:
        """Sets how much of an IPU's memory convolutions, products and the like may use.

        It changes estimates of cycles and tile memory, not results. The temporary memory of a
        convolution, a matrix product, an embedding or an indexed operation stays below this share
        of a tile. Less memory is never faster. See ``docs/guide/extending/device_hints.md``.

        Args:
            available_memory_proportion: a share from 0 to 1 for each IPU, by ``"IPU0"`` or 0. An
                IPU that the dict does not have uses 0.6.
        """

    @option("timeout_s", None, Number(), example=0.5, is_run_time=True,
            default_text="None: no limit")
    def timeout(self, seconds: float) -> Self:
        """Limits how long a call of an inference model takes.

        A call that takes longer raises a ``TimeoutError``, which is also a
        :class:`poptorch.Error`. The model can be called again. The time includes that for which
        the call waits for calls of other threads, and not that of compilation. poptorch checks it
        between operations. See ``docs/guide/deploy/serving.md``.

        A call that stops would leave weights and buffers half written. An inference model whose
        calls change them raises a :class:`poptorch.Error` when it is compiled or loaded, and
        ``trainingModel`` raises one always.

        Args:
            seconds: above 0; default: no limit.
        """

    @option("enable_stable_norm", False, Bool(), backend="enableStableNorm")
    def enableStableNorm(self, enabled: bool) -> Self:
        """Counts norms at the cost of the slower, more accurate implementation of an IPU.

        It changes estimates of cycles and temporary memory: the mean comes first, then the
        variance around it, in a second pass over the input. The results do not change: norms are
        always computed accurately.

        Args:
            enabled: True: the slower implementation. False: the default.
        """
