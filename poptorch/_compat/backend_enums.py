"""The enumerations of the back end that programs name in ``options._Popart.set(key, value)``."""

import enum

from poptorch import enums

# These are those of the public API under another name.
_PUBLIC = (enums.ReductionType, enums.SyncPattern)
_MEMBERS = {
    "AccumulateOuterFragmentSchedule":
        "Scheduler Serial OverlapCycleOptimized OverlapMemoryOptimized",
    "AutodiffStitchStrategy": "RecomputeMinimal RecomputeAllNonInputs AddFwdOutputs "
                              "SafeAddFwdOutputs",
    "BatchSerializationBatchSchedule": "Scheduler Isomorphic OverlapOnIo OverlapOnCompute",
    "BatchSerializationMethod": "UnrollDynamic UnrollStatic Loop",
    "BatchSerializationTransformContext": "Forward Backward Fwd",
    "ExecutionPhaseIOSchedule": "Preload OnDemand",
    "ExecutionPhaseSchedule": "Interleaving Batch BatchClusteredIO",
    "GradientTensorTrackingMethod":
        "AllNonViewChangingGradientTensors ConvAndMatmulGradients GradientsOfUserSpecifiedTensors",
    "Instrumentation": "Outer Inner",
    "MergeVarUpdateType": "None_ All AutoLoose AutoTight",
    "RecomputationType": "None_ Standard NormOnly Pipeline RecomputeAll",
    "ReplicatedTensorSharding": "Off On",
    "SubgraphCopyingStrategy": "OnEnterAndExit JustInTime",
    "SyntheticDataMode": "Off Zeros RandomNormal RandomUniform",
    "TensorStorage": "OffChip OnChip",
    "TileSet": "Compute IO",
    "VirtualGraphMode": "Off Manual Auto ExecutionPhases",
}

# Members are integers, so that int() of one is a value of an option.
globals().update({name: enum.IntEnum(name, members, start=0, module="popart")
                  for name, members in _MEMBERS.items()})
globals().update({public.__name__: enum.IntEnum(
    public.__name__, {member.name: member.value for member in public}, module="popart")
    for public in _PUBLIC})

__all__ = [*_MEMBERS, *(public.__name__ for public in _PUBLIC)]
