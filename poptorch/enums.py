"""Enumerations of the public API."""

import enum


class OutputMode(enum.Enum):
    """Which of the results that a call computes are returned.

    A call runs ``device_iterations`` steps, on each replica, each of
    ``gradient_accumulation`` micro-batches; every micro-batch has its result.

    Example:
        >>> import poptorch
        >>> poptorch.OutputMode.Final.name
        'Final'
    """

    #: The last micro-batch of each replica.
    Final = 0
    #: Every N-th micro-batch of each replica.
    EveryN = 1
    #: Every micro-batch.
    All = 2
    #: The sum over all micro-batches of each replica.
    Sum = 3
    #: ``All`` for inference, ``Final`` for training.
    Default = 4


class ReductionType(enum.Enum):
    """How values are combined: over elements of a loss, over micro-batches or replicas.

    Example:
        >>> import poptorch
        >>> poptorch.ReductionType.Mean.name
        'Mean'
    """

    Sum = 0
    Mean = 1
    NoReduction = 2


class DataLoaderMode(enum.Enum):
    """How a :class:`poptorch.DataLoader` reads its data set.

    Example:
        >>> import poptorch
        >>> poptorch.DataLoaderMode.Sync.value
        0
    """

    #: In the calling process (or in torch's workers, when there are some).
    Sync = 0
