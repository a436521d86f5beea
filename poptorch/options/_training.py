"""Options that only training uses."""

import warnings
from typing import Self

from poptorch._base.checks import COUNT, Bool, Member, OrNone, Positive
from poptorch.enums import MeanReductionStrategy, ReductionType
from poptorch.options._group import OptionGroup, Row


class _TrainingOptions(OptionGroup):
    """Options specific to training: ``options.Training``.

    Args:
        popart_options: the ``_Popart`` group that these options are added to; None: none.

    Example:
        >>> import poptorch
        >>> opts = poptorch.Options()
        >>> _ = opts.Training.gradientAccumulation(4)
        >>> opts.Training.gradient_accumulation
        4
    """

    _PREFIX = "Training."
    _ROWS = (
        Row("gradient_accumulation", 1, "Micro-batches for each weight update.", COUNT,
            "gradientAccumulation", backend="accumulationFactor"),
        Row("accumulation_and_replication_reduction_type", ReductionType.Mean,
            "How gradients of micro-batches and replicas are combined.",
            Member(ReductionType, (ReductionType.NoReduction,)),
            "accumulationAndReplicationReductionType",
            backend="accumulationAndReplicationReductionType"),
        Row("mean_accumulation_and_replication_reduction_strategy", None,
            "When gradients are divided; None: decided by the types that they are added up in.",
            OrNone(Member(MeanReductionStrategy)),
            "setMeanAccumulationAndReplicationReductionStrategy",
            backend="meanAccumulationAndReplicationReductionStrategy",
            default_text="`Post`, or `Running` where gradients are added up in half precision"),
        Row("automatic_loss_scaling", False, "Find the loss scale while training.", Bool(),
            "setAutomaticLossScaling",
            backend="automaticLossScalingSettings.enabled"),
        Row("gradient_clip_norm", None, "The largest norm of all gradients together; None: any.",
            OrNone(Positive()), "gradientClipping"),
        Row("gradient_clip_value", None,
            "The largest absolute value of an element of a gradient; None: any.",
            OrNone(Positive()), "gradientClipping"),
        Row("convolution_dithering", False, "Begin convolutions on different tiles.", Bool(),
            "setConvolutionDithering", later="estimates"),
    )

    def __init__(self, popart_options=None):
        super().__init__()
        if popart_options is not None:
            popart_options._add(self)

    def gradientAccumulation(self, gradient_accumulation: int) -> Self:
        """Sets how many micro-batches add up their gradients before one weight update.

        Args:
            gradient_accumulation: micro-batches, 1 (the default) to 2**31 - 1. The first dimension
                of each input grows by this factor.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: The value is not an int.
            ValueError: The value is less than 1 or more than 2**31 - 1.

        Example:
            >>> import poptorch
            >>> poptorch.Options().Training.gradientAccumulation(8)
            TrainingOptions(gradient_accumulation=8)
        """
        return self._set("gradient_accumulation", gradient_accumulation)

    def accumulationAndReplicationReductionType(
            self, reduction_type: ReductionType) -> Self:
        """Sets how the gradients of micro-batches and replicas are combined.

        Args:
            reduction_type: ``ReductionType.Mean`` (the default) or ``ReductionType.Sum``.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a ReductionType.
            ValueError: ``ReductionType.NoReduction``.

        Example:
            >>> import poptorch
            >>> sum_ = poptorch.ReductionType.Sum
            >>> poptorch.Options().Training.accumulationAndReplicationReductionType(sum_)
            TrainingOptions(accumulation_and_replication_reduction_type=Sum)
        """
        return self._set("accumulation_and_replication_reduction_type", reduction_type)

    def setMeanAccumulationAndReplicationReductionStrategy(
            self, mean_reduction_strategy: MeanReductionStrategy) -> Self:
        """Sets when gradients are divided, under ``ReductionType.Mean``.

        Args:
            mean_reduction_strategy: ``Post``: after all are added up. ``Running``: as they are
                added, so that sums in half precision do not overflow. ``PostAndLoss``
                (deprecated): by the replicas before, by the accumulation after. Without a call
                it is ``Running`` if gradients are added up in half precision, else ``Post``; the
                options of the executor say which. Optimizers of ``poptorch.optim`` add up in
                their ``accum_type``, which is float32 by default, those of ``torch.optim`` and
                ``use_combined_accum`` in the type of the parameter.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a MeanReductionStrategy.

        Example:
            >>> import poptorch
            >>> training = poptorch.Options().Training
            >>> running = poptorch.MeanReductionStrategy.Running
            >>> training.setMeanAccumulationAndReplicationReductionStrategy(running)
            TrainingOptions(mean_accumulation_and_replication_reduction_strategy=Running)
        """
        if mean_reduction_strategy is None:
            raise Member(MeanReductionStrategy).wrong_type(
                None, "Training.setMeanAccumulationAndReplicationReductionStrategy")
        if mean_reduction_strategy is MeanReductionStrategy.PostAndLoss:
            warnings.warn("[Training.setMeanAccumulationAndReplicationReductionStrategy] "
                          "MeanReductionStrategy.PostAndLoss is deprecated. Use Post.",
                          DeprecationWarning, stacklevel=2)
        return self._set("mean_accumulation_and_replication_reduction_strategy",
                         mean_reduction_strategy)

    def setAutomaticLossScaling(self, enabled: bool) -> Self:
        """Finds a factor for the loss that keeps half-precision gradients in range.

        The loss scale is then ``loss_scaling`` of the optimizer (1 without one) times a factor,
        which begins at 1. After each update it becomes half where elements of 16-bit gradients
        come near the largest number of float16, and twice as large after 16 updates where they did
        not. An update with infinities or NaN in the gradients is left out. The factor is a state of
        the optimizer, ``lossScaleUpdateFactor``; the tensor ``finalLossScale`` can be anchored.

        Args:
            enabled: True: find it. False: the default.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> poptorch.Options().Training.setAutomaticLossScaling(True)
            TrainingOptions(automatic_loss_scaling=True)
        """
        return self._set("automatic_loss_scaling", enabled)

    def gradientClipping(self, norm: float | None = None,
                         value: float | None = None) -> Self:
        """Limits the gradients that the optimizer gets, on the device, with any optimizer.

        What is limited are the gradients of the parameters that the optimizer trains, combined
        over micro-batches and replicas and without the loss scale. With both limits the norm comes
        first. ``max_grad_norm`` of an optimizer is one more limit of the norm.

        Args:
            norm: of all gradients together, as ``torch.nn.utils.clip_grad_norm_`` limits it: where
                the norm is larger, all are multiplied by ``norm / (their norm + 1e-6)``. None, the
                default: no limit.
            value: of each element, as ``torch.nn.utils.clip_grad_value_`` limits it: elements are
                kept within ``-value`` and ``value``. None, the default: no limit.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: A limit is not a number.
            ValueError: A limit is not above 0, or not finite.

        Example:
            >>> import poptorch
            >>> poptorch.Options().Training.gradientClipping(norm=1.0)
            TrainingOptions(gradient_clip_norm=1.0)
        """
        norm = self._row("gradient_clip_norm").check(norm, "Training.gradientClipping norm")
        value = self._row("gradient_clip_value").check(value, "Training.gradientClipping value")
        self._set("gradient_clip_norm", norm)
        return self._set("gradient_clip_value", value)

    def setConvolutionDithering(self, enabled: bool) -> Self:
        """Lets convolutions begin on different tiles, for a better balance of memory.

        Args:
            enabled: True: different tiles. False: the default.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> poptorch.Options().Training.setConvolutionDithering(True)
            TrainingOptions(convolution_dithering=True)
        """
        return self._set("convolution_dithering", enabled)
