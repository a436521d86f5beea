"""The documented names: functions and classes with their arguments, in order, and defaults;
properties; enumerations with their members. The ops and the optimizers are elsewhere."""

import poptorch

OPTIONS = {
    "anchorTensor": "short_name, long_name, output_mode=None, output_return_period=1",
    "appendToLocationExcludes": "*excludes",
    "autoRoundNumIPUs": "auto_round_num_ipus=True",
    "broadcastBuffers": "broadcast_buffers=True",
    "clone": "",
    "connectionType": "connection_type",
    "defaultOutputMode": "",
    "deviceIterations": "device_iterations",
    "disableModuleNamescope": "",
    "enableExecutableCaching": "path",
    "enableProfiling": "profile_dir=None",
    "enableStableNorm": "enabled",
    "enableSyntheticData": "enabled",
    "inputReplicaGrouping": "input_group_size=1, input_group_type=CommGroupType.Consecutive",
    "loadFromFile": "filepath",
    "logCycleCount": "log_cycle_count",
    "logDir": "log_dir",
    "maxRepeatLogs": "max_lines",
    "modelName": "name",
    "outputMode": "output_mode, output_return_period=None",
    "randomSeed": "random_seed",
    "relaxOptimizerAttributesChecks": "relax=True",
    "replicationFactor": "replication_factor",
    "setAvailableMemoryProportion": "available_memory_proportion",
    "setExecutionStrategy": "strategy",
    "showCompilationProgressBar": "show=True",
    "sourceLocationExcludes": "excludes",
    "syncPattern": "sync_pattern",
    "useIpuId": "ipu_id",
    "useIpuModel": "use_model",
    "useOfflineIpuTarget": "ipu_version=2",
}
GROUPS = {
    "_DistributedOptions": {"configureProcessId": "process_id, num_processes", "disable": "",
                            "setEnvVarNames": "var_num_processes, var_process_id"},
    "_PrecisionOptions": {
        "enableFloatingPointExceptions": "enabled", "enableStochasticRounding": "enabled",
        "halfFloatCasting": "half_float_casting", "runningStatisticsAlwaysFloat": "value",
        "setPartialsType": "dtype"},
    "_JitOptions": {"traceModel": "trace_model"},
    "_TensorLocationOptions": {
        "numIOTiles": "num_tiles", "setAccumulatorLocation": "location",
        "setActivationLocation": "location", "setOptimizerLocation": "location",
        "setWeightLocation": "location"},
    "_TrainingOptions": {
        "accumulationAndReplicationReductionType": "reduction_type",
        "gradientAccumulation": "gradient_accumulation", "setAutomaticLossScaling": "enabled",
        "setConvolutionDithering": "enabled",
        "setMeanAccumulationAndReplicationReductionStrategy": "mean_reduction_strategy"},
}
LOCATION = {
    "minElementsForOffChip": "min_elements",
    "minElementsForReplicatedTensorSharding": "min_elements",
    "useIOTilesToLoad": "use=True", "useIOTilesToStore": "use=True", "useOnChipStorage": "use=True",
    "useReplicatedTensorSharding": "use=True",
}
EXECUTOR = {
    "__call__": "*args, **kwargs",
    "attachToDevice": "",
    "compile": "*args, **kwargs",
    "compileAndExport": "filename, *args, export_model=True, **kwargs",
    "copyWeightsToDevice": "",
    "copyWeightsToHost": "",
    "copyWeightsToHostIfNeeded": "",
    "cycleCount": "",
    "destroy": "",
    "detachFromDevice": "",
    "getComputeLatency": "",
    "getHostIpuLatency": "",
    "getIpuHostLatency": "",
    "getLatency": "",
    "getPerfCounters": "",
    "getTensorNames": "",
    "isAttachedToDevice": "",
    "isCompiled": "",
    "loadExecutable": "filename",
    "load_state_dict": "state_dict, strict=True",
    "save": "filename, export_model=True, save_rng_state=True",
    "setOptimizer": "optimizer",
}
PHASED = {"phase": "phase", "stage": "block_id", "useSeparateBackwardPhase": "use=True"}
_BLOCK = "user_id=None, ipu_id=None"
FUNCTIONS = {
    "ipuHardwareIsAvailable": "num_ipus=1",
    "ipuHardwareVersion": "",
    "setLogLevel": "level",
    "profiling.Channel": "name",
    "profiling.Channel.instrument": "obj, *methods",
    "profiling.Channel.tracepoint": "name",
    "trainingModel": "model, options=None, optimizer=None, *, loss=None",  # loss is ours
    "inferenceModel": "model, options=None",
    "PoplarExecutor":
        "model, options, training, poptorch_version, optimizer=None, user_model=None",
    "isRunningOnIpu": "",
    "CPU": "layer_to_call, ID",
    "CPU.execute": "",
    "CPU.registerPersistentData": "",
    "ctc_beam_search_decoder": "probs, lengths, blank=0, beam_width=100, top_paths=1",
    "dynamic_slice": "tensor, dim, start, size, step",
    "dynamic_update": "input, src, dim, start, size",
    "load": "filename, edit_opts_fn=None",
    "Options": "",
    "TensorLocationSettings": "**default_values",
    "Block": _BLOCK,
    "Block.useAutoId": "",
    "BeginBlock": f"layer_to_call, {_BLOCK}",
    "BlockFunction": _BLOCK,
    "removeBlocks": "module",
    "Stage": "*block_ids",
    "Stage.ipu": "ipu",
    "Phase": "*arg",
    "Phase.ipus": "*ipus",
    "ShardedExecution": "*args",
    "ShardedExecution.stage": "block_id",
    "PipelinedExecution": "*args",
    "PipelinedExecution.stage": "block_id",
    "SerialPhasedExecution": "*phases",
    "SerialPhasedExecution.setTensorsLiveness": "liveness",
    "ParallelPhasedExecution": "*phases",
    "DataLoader":
        "options, dataset, batch_size=1, shuffle=None, num_workers=0, drop_last=True, "
        "persistent_workers=None, auto_distributed_partitioning=True, mode=DataLoaderMode.Sync, "
        "async_options=None, rebatched_worker_size=None, batch_sampler=None, **kwargs",
    "DataLoader.terminate": "",
    "AsynchronousDataAccessor":
        "dataset, buffer_size=3, miss_sleep_time_in_ms=0.1, load_indefinitely=True, "
        "early_preload=False, sharing_strategy=SharingStrategy.ForkServer, rebatched_size=None",
    "AsynchronousDataAccessor.terminate": "",
    **{f"Options.{name}": arguments for name, arguments in OPTIONS.items()},
    **{f"options.{group}.{name}": arguments
       for group, setters in GROUPS.items() for name, arguments in setters.items()},
    **{f"TensorLocationSettings.{name}": arguments for name, arguments in LOCATION.items()},
    **{f"PoplarExecutor.{name}": arguments for name, arguments in EXECUTOR.items()},
    **{f"{kind}PhasedExecution.{name}": arguments
       for kind in ("Serial", "Parallel") for name, arguments in PHASED.items()},
}
PROPERTIES = (
    "Options.Distributed", "Options.Jit", "Options.Precision", "Options.TensorLocations",
    "Options.Training", "options._DistributedOptions.numProcesses",
    "options._DistributedOptions.processId", "PoplarExecutor.model", "PoplarExecutor.options",
    "PoplarExecutor.rng_state", "Stage.blocks", "DataLoader.combinedBatchSize",
    "DataLoader.options")
MEMBERS = {
    "AutoStage": "SameAsIpu AutoIncrement",
    "Liveness": "AlwaysLive OffChipAfterFwd OffChipAfterFwdNoOverlap OffChipAfterEachPhase",
    "CommGroupType": "All Consecutive Orthogonal NoGrouping",
    "VariableRetrievalMode": "OnePerGroup AllReplicas",
    "DataLoaderMode": "Sync Async AsyncRebatched",
    "SharingStrategy": "SharedMemory FileSystem Fork ForkServer",
    "OverlapMode": "NoOverlap OverlapAccumulationLoop OverlapDeviceIterationLoop",
    "MatMulSerializationMode": "InputChannels ReducingDim OutputChannels Disabled",
    "MultiConvPlanType": "Parallel Serial",
    "SyncPattern": "Full SinglePipeline ReplicaAndLadder",
    "ReductionType": "Sum Mean NoReduction",
    "ConnectionType": "Always OnDemand Never",
    "OutputMode": "All Sum Final EveryN Default",
    "MeanReductionStrategy": "Running Post PostAndLoss",
}


def find(name):
    """The class or module that has what a dotted name says, and its name there."""
    *path, last = name.split(".")
    owner = poptorch
    for part in path:
        owner = getattr(owner, part)
    return owner, last
