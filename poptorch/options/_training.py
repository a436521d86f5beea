"""Options that only training uses."""

from poptorch.enums import ReductionType
from poptorch.options._group import OptionGroup, Row, at_least, one_of


class _TrainingOptions(OptionGroup):
    """Options specific to training: ``options.Training``.

    Example:
        >>> import poptorch
        >>> opts = poptorch.Options()
        >>> _ = opts.Training.gradientAccumulation(4)
        >>> opts.Training.gradient_accumulation
        4
    """

    ROWS = (
        Row("gradient_accumulation", 1, "Micro-batches for each weight update."),
        Row("accumulation_and_replication_reduction_type", ReductionType.Mean,
            "How gradients of micro-batches and replicas are combined."),
    )

    def gradientAccumulation(self, gradient_accumulation: int) -> "_TrainingOptions":
        """Sets how many micro-batches add up their gradients before one weight update.

        Args:
            gradient_accumulation: micro-batches, at least 1 (the default). The first dimension
                of each input grows by this factor.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: The value is not an int.
            ValueError: The value is less than 1.
            AttributeError: The options are in use.

        Example:
            >>> import poptorch
            >>> poptorch.Options().Training.gradientAccumulation(8)
            TrainingOptions(gradient_accumulation=8)
        """
        return self._set("gradient_accumulation",
                         at_least(1, gradient_accumulation, "Training.gradientAccumulation"))

    def accumulationAndReplicationReductionType(
            self, reduction_type: ReductionType) -> "_TrainingOptions":
        """Sets how the gradients of micro-batches and replicas are combined.

        Args:
            reduction_type: ``ReductionType.Mean`` (the default) or ``ReductionType.Sum``.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a ReductionType.
            ValueError: ``ReductionType.NoReduction``.
            AttributeError: The options are in use.

        Example:
            >>> import poptorch
            >>> sum_ = poptorch.ReductionType.Sum
            >>> poptorch.Options().Training.accumulationAndReplicationReductionType(sum_)
            TrainingOptions(accumulation_and_replication_reduction_type=Sum)
        """
        option = "Training.accumulationAndReplicationReductionType"
        one_of(ReductionType, reduction_type, option)
        if reduction_type is ReductionType.NoReduction:
            raise ValueError(f"[{option}] expected ReductionType.Mean or ReductionType.Sum, "
                             f"got ReductionType.NoReduction.")
        return self._set("accumulation_and_replication_reduction_type", reduction_type)
