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

    #: Their sum.
    Sum = 0
    #: Their mean.
    Mean = 1
    #: They are left as they are.
    NoReduction = 2


class ConnectionType(enum.Enum):
    """When an executor takes hold of its device.

    Example:
        >>> import poptorch
        >>> poptorch.ConnectionType.OnDemand.name
        'OnDemand'
    """

    #: Before the model is compiled.
    Always = 0
    #: When it is compiled.
    OnDemand = 1
    #: Never: the model can be compiled and saved, but not run.
    Never = 2
    #: Never: a call compiles the model and returns zeros. A program that is run once with this
    #: setting and a cache (``Options.enableExecutableCaching``) compiles all its models.
    PreCompile = 3


class SyncPattern(enum.Enum):
    """Which IPUs wait for one another.

    Example:
        >>> import poptorch
        >>> poptorch.SyncPattern.Full.value
        0
    """

    #: All, at each exchange between IPUs or with the host.
    Full = 0
    #: An IPU communicates with the host without waiting for the rest of its pipeline.
    SinglePipeline = 1
    #: Groups of IPUs take turns in talking to the host and computing.
    ReplicaAndLadder = 2


class MeanReductionStrategy(enum.Enum):
    """When gradients are divided, under ``ReductionType.Mean``.

    Example:
        >>> import poptorch
        >>> poptorch.MeanReductionStrategy.Post.name
        'Post'
    """

    #: As they are added up, so that the sum never grows beyond one gradient.
    Running = 0
    #: After all of them have been added up.
    Post = 1
    #: By the replicas before they are added up, by the accumulation after. Deprecated.
    PostAndLoss = 2


class HalfFloatCastingBehavior(enum.Enum):
    """What an operation on a half and a float tensor computes in. Without effect: PyTorch's rules
    hold.

    Example:
        >>> import poptorch
        >>> poptorch.HalfFloatCastingBehavior.HalfUpcastToFloat.name
        'HalfUpcastToFloat'
    """

    #: In half: the float tensor is rounded.
    FloatDowncastToHalf = 0
    #: In float.
    HalfUpcastToFloat = 1


class OverlapMode(enum.Enum):
    """What the device computes while a tensor is copied from or to the host.

    Example:
        >>> import poptorch
        >>> poptorch.OverlapMode.NoOverlap.value
        0
    """

    #: Nothing: the tensor is copied when it is needed.
    NoOverlap = 0
    #: The micro-batch before.
    OverlapAccumulationLoop = 1
    #: The micro-batch before, also over the end of a device iteration.
    OverlapDeviceIterationLoop = 2


class MatMulSerializationMode(enum.Enum):
    """The dimension along which a matrix product is cut; the sides are ``[m, n]`` and ``[n, p]``.

    Example:
        >>> import poptorch
        >>> poptorch.MatMulSerializationMode.ReducingDim.name
        'ReducingDim'
    """

    #: m.
    InputChannels = 0
    #: n.
    ReducingDim = 1
    #: p.
    OutputChannels = 2
    #: It is not cut.
    Disabled = 3


class MultiConvPlanType(enum.Enum):
    """How the convolutions of a ``MultiConv`` share the tiles.

    Example:
        >>> import poptorch
        >>> poptorch.MultiConvPlanType.Parallel.value
        0
    """

    #: All run at the same time, each on some of the tiles.
    Parallel = 0
    #: One runs after the other, each on all tiles.
    Serial = 1


class AutoStage(enum.Enum):
    """Which stage a block belongs to when the strategy names none.

    Example:
        >>> import poptorch
        >>> poptorch.AutoStage.SameAsIpu.name
        'SameAsIpu'
    """

    #: The one with the number of the block's IPU. A block without ``ipu_id`` runs on the IPU of
    #: the block before it; the first one on IPU 0.
    SameAsIpu = 0
    #: A new one for each block. A block without ``ipu_id`` runs on the IPU after that of the block
    #: before it; the first one on IPU 0.
    AutoIncrement = 1


class PipelineSchedule(enum.Enum):
    """The order in which the stages of a pipeline run the micro-batches of a step.

    The stages of a pipeline wait while it fills and while it drains. Of p stages that take equal
    time for m micro-batches, each waits for ``(p - 1) / (m + p - 1)`` of a step; with
    ``Sequential`` for ``(p - 1) / p``. Schedules differ in how many micro-batches stage s (from 0)
    keeps activations for.

    Example:
        >>> import poptorch
        >>> strategy = poptorch.PipelinedExecution("A", "B")
        >>> strategy.schedule(poptorch.PipelineSchedule.Interleaved)
        PipelinedExecution(Stage('A'), Stage('B')).schedule(PipelineSchedule.Interleaved)
    """

    #: All forward stages at the same time, then all backward stages. A stage keeps
    #: ``2 (p - 1 - s) + 1`` micro-batches.
    Grouped = "grouped"
    #: Each stage changes between a forward and a backward micro-batch ("1F1B"). A stage keeps
    #: ``p - s`` micro-batches.
    Interleaved = "interleaved"
    #: One stage after the other: no two of them run at the same time. A stage keeps one
    #: micro-batch.
    Sequential = "sequential"
    #: The forward pass of all micro-batches, then their backward pass ("GPipe"). A stage keeps m
    #: micro-batches.
    FillDrain = "fill_drain"


class Recomputation(enum.Enum):
    """Whether the stages of a model recompute activations in the backward pass.

    A stage that recomputes keeps its inputs and what ``poptorch.recomputationCheckpoint`` marks for
    its backward pass. It computes its other activations again. The bits of all results stay the
    same.

    Example:
        >>> import poptorch
        >>> poptorch.Options().Training.recomputation(poptorch.Recomputation.Off)
        TrainingOptions(recompute=Off)
    """

    #: On in pipelines.
    Auto = "auto"
    #: Stages keep all activations that their backward pass reads.
    Off = "off"
    #: On in pipelines and in ``ShardedExecution``.
    Stages = "stages"

    @classmethod
    def _missing_(cls, value: object) -> "Recomputation | None":
        return {0: cls.Off, 3: cls.Stages}.get(value)  # of the back end


class Liveness(enum.Enum):
    """Where tensors are between the phases of phased execution.

    Example:
        >>> import poptorch
        >>> poptorch.Liveness.AlwaysLive.value
        0
    """

    #: On the IPU.
    AlwaysLive = 0
    #: Off the chip from the end of the forward pass to the beginning of the backward pass.
    OffChipAfterFwd = 1
    #: As ``OffChipAfterFwd``, and no phase loads while a different phase stores.
    OffChipAfterFwdNoOverlap = 2
    #: Off the chip after each phase.
    OffChipAfterEachPhase = 3


class CommGroupType(enum.Enum):
    """How replicas form groups; of R replicas, groups of k, m = R / k of them.

    Example:
        >>> import poptorch
        >>> poptorch.CommGroupType.Consecutive.name
        'Consecutive'
    """

    #: One group of all replicas.
    All = 0
    #: Neighbours: ``{0 ... k-1}, {k ... 2k-1}, ...``.
    Consecutive = 1
    #: Every m-th replica: ``{0, m, 2m, ...}, {1, m+1, 2m+1, ...}, ...``.
    Orthogonal = 2
    #: Each replica for itself.
    NoGrouping = 3


class VariableRetrievalMode(enum.Enum):
    """What is read back of a weight that has a value for each group of replicas.

    Example:
        >>> import poptorch
        >>> poptorch.VariableRetrievalMode.OnePerGroup.value
        0
    """

    #: The value of the first replica of each group.
    OnePerGroup = 0
    #: The value of each replica.
    AllReplicas = 1


class DataLoaderMode(enum.Enum):
    """How a :class:`poptorch.DataLoader` reads its data set.

    Example:
        >>> import poptorch
        >>> poptorch.DataLoaderMode.Sync.value
        0
    """

    #: In the calling process (or in torch's workers, when there are some).
    Sync = 0
    #: Ahead, in a process of its own, see ``poptorch.AsynchronousDataAccessor``.
    Async = 1
    #: As Async; for iterable data sets, torch's workers leave nothing out: what does not fill a
    #: batch in one worker is joined with what the others have left.
    AsyncRebatched = 2


class SharingStrategy(enum.Enum):
    """How a process that loads data gets the data set when it is made.

    Example:
        >>> import poptorch
        >>> poptorch.SharingStrategy.ForkServer.name
        'ForkServer'
    """

    #: A new interpreter; tensors go through shared memory, the rest is pickled.
    SharedMemory = 0
    #: A new interpreter; all is pickled to a file.
    FileSystem = 1
    #: A fork: nothing is pickled. Unsafe where the program has threads that hold locks.
    Fork = 2
    #: A fork: of this program where no other thread of it runs Python, else of a server process.
    #: Pickled; tensors are inherited, or go through shared memory.
    ForkServer = 3
