"""The enumerations of the back end that programs name in ``options._Popart.set(key, value)``."""

import enum

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
    "ReductionType": "Mean Sum NoReduction",
    "ReplicatedTensorSharding": "Off On",
    "SubgraphCopyingStrategy": "OnEnterAndExit JustInTime",
    "SyncPattern": "Full SinglePipeline ReplicaAndLadder",
    "SyntheticDataMode": "Off Zeros RandomNormal RandomUniform",
    "TensorStorage": "OffChip OnChip",
    "TileSet": "Compute IO",
    "VirtualGraphMode": "Off Manual Auto ExecutionPhases",
}

# Members are integers, so that int() of one is a value of an option.
globals().update({name: enum.IntEnum(name, members, start=0, module="popart")
                  for name, members in _MEMBERS.items()})

__all__ = list(_MEMBERS)
