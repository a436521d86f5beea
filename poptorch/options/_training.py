"""Options that only training uses."""

import warnings
from typing import Self

from poptorch._base.checks import COUNT, Bool, Member, Number, OrNone
from poptorch.enums import MeanReductionStrategy, Recomputation, ReductionType
from poptorch.options._group import OptionGroup
from poptorch.options._row import option, row


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

    def __init__(self, popart_options=None):
        super().__init__()
        if popart_options is not None:
            popart_options._add(self)

    @option("gradient_accumulation", 1, COUNT, example=8, backend="accumulationFactor",
            step="accumulation")
    def gradientAccumulation(self, gradient_accumulation: int) -> Self:
        """Sets how many micro-batches add up their gradients before one weight update.

        Args:
            gradient_accumulation: micro-batches, 1 (the default) to 2**31 - 1. The first dimension
                of each input grows by this factor.
        """

    @option("accumulation_and_replication_reduction_type", ReductionType.Mean,
            Member(ReductionType, (ReductionType.NoReduction,)), example=ReductionType.Sum,
            backend="accumulationAndReplicationReductionType")
    def accumulationAndReplicationReductionType(
            self, reduction_type: ReductionType) -> Self:
        """Sets how the gradients of micro-batches and replicas are combined.

        Args:
            reduction_type: ``ReductionType.Mean`` (the default) or ``ReductionType.Sum``.
        """

    @row("mean_accumulation_and_replication_reduction_strategy", None,
         Member(MeanReductionStrategy), example=MeanReductionStrategy.Running,
         backend="meanAccumulationAndReplicationReductionStrategy",
         step="mean_strategy",
         default_text="`Post`, or `Running` where gradients are added up in half precision")
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
        """
        if mean_reduction_strategy is MeanReductionStrategy.PostAndLoss:
            warnings.warn("[Training.setMeanAccumulationAndReplicationReductionStrategy] "
                          "MeanReductionStrategy.PostAndLoss is deprecated. Use Post.",
                          DeprecationWarning, stacklevel=2)
        return self._set("mean_accumulation_and_replication_reduction_strategy",
                         mean_reduction_strategy)

    @option("recompute", Recomputation.Auto, Member(Recomputation), example=Recomputation.Off,
            backend="autoRecomputation", step="recomputation")
    def recomputation(self, recomputation: Recomputation) -> Self:
        """Sets whether stages recompute activations in the backward pass.

        It changes the bytes that the IPUs keep and the work of ``executor.schedule()`` and
        ``executor.timeline()``. Results do not change.

        Args:
            recomputation: ``Recomputation.Auto`` (the default): in pipelines. ``Off``: never.
                ``Stages``: in pipelines and in ``ShardedExecution``.
        """

    @option("optimizer_on_host", False, Bool())
    def optimizerOnHost(self, enabled: bool) -> Self:
        """Runs ``step()`` of the optimizer on the host, after each call of the model.

        The device computes the gradients, accumulated and reduced over replicas. The host puts
        them into ``p.grad``, calls ``step()`` and gives the device the new weights. Any optimizer
        can do this, also one whose ``step()`` reads values of tensors; each call copies gradients
        and weights. It needs ``deviceIterations(1)``, and loss scaling is not available.

        Args:
            enabled: True: on the host. False: on the device, the default.
        """

    @option("automatic_loss_scaling", False, Bool(), backend="automaticLossScalingSettings.enabled",
            step="automatic_loss_scaling")
    def setAutomaticLossScaling(self, enabled: bool) -> Self:
        """Finds a factor for the loss that keeps half-precision gradients in range.

        The loss scale is then ``loss_scaling`` of the optimizer (1 without one) times a factor,
        which begins at 1. After each update it becomes half where elements of 16-bit gradients
        come near the largest number of float16, and twice as large after 16 updates where they did
        not. An update with infinities or NaN in the gradients is left out. The factor is a state of
        the optimizer, ``lossScaleUpdateFactor``; the tensor ``finalLossScale`` can be anchored.

        Args:
            enabled: True: find it. False: the default.
        """

    @option("gradient_clip_norm", None, OrNone(Number()), step="clip_norm",
            doc="The largest norm of all gradients together; None: any.")
    @option("gradient_clip_value", None, OrNone(Number()), step="clip_value",
            doc="The largest absolute value of an element of a gradient; None: any.")
    def gradientClipping(self, norm: float | None = None,
                         value: float | None = None) -> Self:
        """Limits the gradients that the optimizer gets, on the device, with any optimizer.

        It limits the gradients of the parameters that the optimizer trains, combined
        over micro-batches and replicas and without the loss scale. With both limits the norm comes
        first. ``max_grad_norm`` of an optimizer is one more limit of the norm.

        The tensor ``gradientNorm``, the norm before the limit, can be anchored.

        Args:
            norm: of all gradients together, as ``torch.nn.utils.clip_grad_norm_`` limits it: where
                the norm is larger, all are multiplied by ``norm / (their norm + 1e-6)``. None, the
                default: no limit.
            value: of each element, as ``torch.nn.utils.clip_grad_value_`` limits it: elements are
                kept within ``-value`` and ``value``. None, the default: no limit.

        Example:
            >>> import poptorch
            >>> poptorch.Options().Training.gradientClipping(norm=1.0)
            TrainingOptions(gradient_clip_norm=1.0)
        """

    @option("convolution_dithering", False, Bool())
    def setConvolutionDithering(self, enabled: bool) -> Self:
        """Lets convolutions begin on different tiles, for a better balance of memory.

        It changes estimates of tile memory, not results.

        Args:
            enabled: True: different tiles. False: the default.
        """
