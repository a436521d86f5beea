"""The options object that users build."""

import copy

import torch

from poptorch.enums import OutputMode
from poptorch.options._group import OptionGroup, Row, a_bool, at_least, one_of
from poptorch.options._training import _TrainingOptions


class Options(OptionGroup):
    """How a model is compiled and run. Setters can be chained.

    Example:
        >>> import poptorch
        >>> poptorch.Options().deviceIterations(16).randomSeed(42)
        Options(device_iterations=16, random_seed=42)
    """

    ROWS = (
        Row("device_iterations", 1, "Steps that the device runs for each call."),
        Row("replication_factor", 1, "Copies of the model that work on parts of the batch."),
        Row("output_mode", OutputMode.Default, "Which results a call returns."),
        Row("output_return_period", 1, "N of OutputMode.EveryN."),
        Row("random_seed", None, "Seed of the device's random generator; None: torch's own."),
        Row("use_ipu_model", None, "Run on the IPU Model; None: where no system is present."),
        Row("show_compilation_progress_bar", True, "Show a progress bar while compiling."),
    )

    def __init__(self):
        super().__init__()
        self._training = _TrainingOptions()

    @property
    def Training(self) -> _TrainingOptions:
        """The options specific to training."""
        return self._training

    def deviceIterations(self, device_iterations: int) -> "Options":
        """Sets how many steps the device runs for each call, without coming back to the host.

        Args:
            device_iterations: steps, at least 1 (the default). The first dimension of each input
                is ``device_iterations * gradient_accumulation * replication_factor *
                micro_batch``.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: The value is not an int.
            ValueError: The value is less than 1.
            AttributeError: The options are in use.

        Example:
            >>> import poptorch
            >>> poptorch.Options().deviceIterations(16)
            Options(device_iterations=16)
        """
        return self._set("device_iterations", at_least(1, device_iterations, "deviceIterations"))

    def replicationFactor(self, replication_factor: int) -> "Options":
        """Sets how many replicas of the model share the work, each on its part of the batch.

        Gradients are combined over the replicas before each weight update, see
        ``Training.accumulationAndReplicationReductionType``.

        Args:
            replication_factor: replicas, at least 1 (the default).

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: The value is not an int.
            ValueError: The value is less than 1.
            AttributeError: The options are in use.

        Example:
            >>> import poptorch
            >>> poptorch.Options().replicationFactor(2)
            Options(replication_factor=2)
        """
        return self._set("replication_factor",
                         at_least(1, replication_factor, "replicationFactor"))

    def outputMode(self, output_mode: OutputMode,
                   output_return_period: int | None = None) -> "Options":
        """Sets which of the results of a call are returned.

        Args:
            output_mode: see :class:`poptorch.OutputMode`. ``Default`` is ``All`` for inference
                and ``Final`` for training.
            output_return_period: N of ``OutputMode.EveryN``, at least 1, a divisor of
                ``device_iterations * gradient_accumulation``; ignored in other modes.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not an OutputMode, or the period is not an int.
            ValueError: ``EveryN`` without a period, or a period less than 1.
            AttributeError: The options are in use.

        Example:
            >>> import poptorch
            >>> poptorch.Options().outputMode(poptorch.OutputMode.EveryN, 10)
            Options(output_mode=EveryN, output_return_period=10)
        """
        one_of(OutputMode, output_mode, "outputMode")
        period = 1
        if output_mode is OutputMode.EveryN:
            if output_return_period is None:
                raise ValueError("[outputMode] OutputMode.EveryN needs output_return_period, got "
                                 "None. Give the N of \"every N\".")
            period = at_least(1, output_return_period, "outputMode")
        self._set("output_mode", output_mode)
        return self._set("output_return_period", period)

    def defaultOutputMode(self) -> bool:
        """Returns True while the output mode is ``OutputMode.Default``.

        Example:
            >>> import poptorch
            >>> poptorch.Options().defaultOutputMode()
            True
        """
        return self.output_mode is OutputMode.Default

    def randomSeed(self, random_seed: int) -> "Options":
        """Sets the seed of the device's random generator, and of torch's on the host.

        Two executors of one model with one seed give the same numbers.

        Args:
            random_seed: any int of 64 bits.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: The value is not an int.
            ValueError: The value does not fit into 64 bits.
            AttributeError: The options are in use.

        Example:
            >>> import poptorch
            >>> poptorch.Options().randomSeed(42)
            Options(random_seed=42)
        """
        seed = at_least(-2**63, random_seed, "randomSeed")
        if seed >= 2**64:
            raise ValueError(f"[randomSeed] expected an int below 2**64, got {seed}.")
        self._set("random_seed", seed)
        torch.manual_seed(seed)
        return self

    def useIpuModel(self, use_model: bool) -> "Options":
        """Chooses between the IPU Model and an IPU system.

        Args:
            use_model: True: the IPU Model. False: a system; where none is present (always, so
                far), the program runs on the IPU Model after a warning.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.
            AttributeError: The options are in use.

        Example:
            >>> import poptorch
            >>> poptorch.Options().useIpuModel(True)
            Options(use_ipu_model=True)
        """
        return self._set("use_ipu_model", a_bool(use_model, "useIpuModel"))

    def showCompilationProgressBar(self, show: bool = True) -> "Options":
        """Shows or hides the progress bar of a compilation (shown by default, on stderr).

        Args:
            show: True shows it.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.
            AttributeError: The options are in use.

        Example:
            >>> import poptorch
            >>> poptorch.Options().showCompilationProgressBar(False)
            Options(show_compilation_progress_bar=False)
        """
        return self._set("show_compilation_progress_bar",
                         a_bool(show, "showCompilationProgressBar"))

    def clone(self) -> "Options":
        """Returns an unfrozen copy that shares nothing with this object.

        Example:
            >>> import poptorch
            >>> a = poptorch.Options().deviceIterations(2)
            >>> a.clone().deviceIterations(3), a
            (Options(device_iterations=3), Options(device_iterations=2))
        """
        return copy.deepcopy(self)

    def __deepcopy__(self, memo) -> "Options":
        new = type(self)()
        new._values = copy.deepcopy(self._values, memo)
        new._training._values = copy.deepcopy(self._training._values, memo)
        return new

    def __eq__(self, other) -> bool:
        return super().__eq__(other) and self._training == other._training

    __hash__ = None

    def __repr__(self) -> str:
        own = super().__repr__()[:-1]
        inner = repr(self._training)
        if inner.endswith("()"):
            return own + ")"
        return f"{own}{'' if own.endswith('(') else ', '}Training={inner})"

    def _freeze(self) -> None:
        super()._freeze()
        self._training._freeze()
