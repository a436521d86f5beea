"""For each public name of the API, option setters apart, the test that fails when it does nothing.

`poptorch.testing`, tools of tests, is left out.
A name of an enumeration stands for its members: nothing tells one from another any more.
"""

_API = "tests/api/"
_PROGRAMS = "tests/existing_programs/"
_DATA = "tests/data/"
_PUBLIC_OPS = "tests/public_ops/"
_STRATEGIES = "tests/api/test_strategies.py::"
_REPORT = "tests/reports/device/test_report.py::"
_PLACES = "tests/capture/graph/test_source_location.py::"

HELPERS = {
    "custom_op": "tests/custom_ops/test_named_ops.py::test_gradients_are_those_of_pytorch",
    "include_path": "tests/custom_ops/test_mistakes.py::test_the_build_of_torch",
    "ipuHardwareIsAvailable": _API + "options/test_effects_device.py::test_no_system_is_present",
    "ipuHardwareVersion": _API + "options/test_effects_device.py::test_no_system_is_present",
    "devices": "tests/device/test_systems.py::test_devices",
    "Attribute": _PROGRAMS + "test_optimizers.py::test_hints_warn_once",
    "isCompilingWithDispatcher":
        _PROGRAMS + "test_private_modules.py::test_names_for_the_log_and_the_version",
    "isRunningOnIpu": _API + "test_executor.py::test_is_running_on_ipu",
    "setLogLevel": "tests/base/test_logging.py::test_levels",
    "logger": "tests/base/test_logging.py::test_logger_is_a_standard_one",
    "Error": _API + "test_errors.py::test_classes_and_attributes",
    "RecoverableError": _API + "test_errors.py::test_recovery_action",
    "UnrecoverableError": _API + "test_errors.py::test_classes_and_attributes",
    "profiling.Channel": _API + "test_profiling.py::test_tracepoints_nest",
    "profiling.Channel.tracepoint": _API + "test_profiling.py::test_tracepoints_nest",
    "profiling.Channel.instrument": _API + "test_profiling.py::test_instrument",
}

OPTIONS = {
    "Options": _API + "options/test_options.py::test_equal_options_print_equal",
    "Options.Training": _API + "options/test_options.py::test_setter_sets_and_can_be_chained",
    "Options.Precision": _API + "options/test_options.py::test_setter_sets_and_can_be_chained",
    "Options.TensorLocations": _API + "options/test_options.py::test_location_settings_are_copied",
    **{f"Options.Distributed{name}":
       _API + "options/test_options_environment.py::test_launcher_variables"
       for name in ("", ".numProcesses", ".processId")},
    "Options.Jit": _API + "options/test_options.py::test_setter_sets_and_can_be_chained",
    "Options.clone": _API + "options/test_options.py::test_copies_share_nothing",
    "Options.anchorMode": "tests/existing_programs/test_options.py::test_names_of_old_releases",
    "Options.defaultOutputMode": _API + "options/test_options.py::test_output_mode",
    "Options.loadFromFile": _API + "options/test_options_file.py::test_a_whole_file",
    "Options.toDict": _API + "options/test_options.py::test_dict_and_back",
    "Options.fromDict": _API + "options/test_options.py::test_dict_and_back",
    "Options.checkIsFrozen": _API + "options/test_options.py::test_a_frozen_group_says_so",
    "TensorLocationSettings": _API + "options/test_options.py::test_location_settings_are_copied",
    "TensorLocationSettings.toDict": _API + "options/test_options.py::test_location_setters",
    "TensorLocationSettings.checkIsFrozen":
        _API + "options/test_options.py::test_a_frozen_group_says_so",
}

EXECUTOR = {
    "trainingModel": _API + "test_executor.py::test_training_changes_the_module",
    "compile": "tests/torch_compile/test_compile.py::test_modules_of_torch_are_compiled",
    "inferenceModel": _API + "test_executor.py::test_inference_equals_eager",
    "PoplarExecutor": _API + "test_executor.py::test_inference_equals_eager",
    "PoplarExecutor.__call__": _API + "test_executor.py::test_inference_equals_eager",
    "PoplarExecutor.compile": _API + "test_executor.py::test_compile_without_running",
    "PoplarExecutor.copyWeightsToDevice":
        _API + "test_executor.py::test_host_changes_need_copy_to_device",
    "PoplarExecutor.copyWeightsToHost": _API + "test_executor.py::test_weights_are_read_back_once",
    "PoplarExecutor.copyWeightsToHostIfNeeded":
        _API + "test_executor.py::test_weights_are_read_back_once",
    "PoplarExecutor.copyNamedBuffersToDevice":
        _API + "options/test_effects_data.py::test_updatable_named_buffers",
    "PoplarExecutor.state_dict": _API + "test_executor.py::test_training_changes_the_module",
    "PoplarExecutor.load_state_dict":
        _API + "test_executor.py::test_load_state_dict_reaches_the_device",
    "PoplarExecutor.per_replica_params":
        _API + "weights/test_replica_grouping_paths.py::test_per_replica_params",
    "PoplarExecutor.setOptimizer":
        _API + "test_executor.py::test_set_optimizer_changes_the_learning_rate",
    "PoplarExecutor.isCompiled": _API + "test_executor.py::test_compile_without_running",
    "PoplarExecutor.destroy": _API + "test_executor.py::test_destroy_and_wrap_again",
    "PoplarExecutor.model": _API + "test_executor.py::test_attributes_are_the_modules",
    "PoplarExecutor.options": _API + "test_executor.py::test_attributes_are_the_modules",
    "PoplarExecutor.training": _API + "test_executor.py::test_attributes_are_the_modules",
    "PoplarExecutor.train": _API + "test_wrapping.py::test_the_executors_mode_selects_the_branch",
    "PoplarExecutor.eval": _API + "test_wrapping.py::test_the_executors_mode_selects_the_branch",
    "PoplarExecutor.isAttachedToDevice": _API + "options/test_effects_device.py::test_attachment",
    "PoplarExecutor.attachToDevice":
        _API + "weights/test_attachment.py::test_training_goes_on_bit_for_bit",
    "PoplarExecutor.detachFromDevice":
        _API + "weights/test_attachment.py::test_memory_is_given_back",
    "PoplarExecutor.cycleCount": _REPORT + "test_cycle_count",
    "PoplarExecutor.report": _REPORT + "test_a_report_of_a_pipeline",
    "DeviceReport": _REPORT + "test_a_report_of_a_pipeline",
    "DeviceReport.from_json": _REPORT + "test_files",
    "DeviceReport.to_json": _REPORT + "test_files",
    "DeviceReport.to_html": _REPORT + "test_pages",
    "DeviceReport.to_memory_snapshot":
        "tests/reports/device/test_snapshot.py::test_memory_at_the_peak",
    "DeviceReport.diff": _REPORT + "test_differences",
    "DeviceReport.opaque_ops": _REPORT + "test_ops_without_a_rule",
    "PoplarExecutor.ir": _API + "test_executor.py::test_reports",
    "PoplarExecutor.memory_report": _API + "test_executor.py::test_reports",
    "PoplarExecutor.op_report": _API + "test_executor.py::test_reports",
    "PoplarExecutor.work_report": _API + "test_executor.py::test_reports",
}

FILES = {
    **{name: "tests/files/test_bundles.py::"
             "test_both_programs_go_on_with_one_set_of_weights"
       for name in ("save_bundle", "load_bundle")},
    **{name: "tests/files/test_weights.py::test_there_and_back"
       for name in ("save_weights", "load_weights")},
    "convert_precision": "tests/api/test_precision_conversion.py::"
                         "test_types_and_results[dtype0]",
    "load": "tests/files/test_files.py::test_training_goes_on_bit_for_bit",
    "PoplarExecutor.compileAndExport":
        "tests/files/test_files.py::test_export_before_the_first_call",
    "PoplarExecutor.save": "tests/files/test_files.py::test_training_goes_on_bit_for_bit",
    "PoplarExecutor.loadExecutable":
        "tests/files/test_files.py::test_load_executable_takes_the_weights_of_the_module",
    "PoplarExecutor.rng_state": _API + "test_inspection.py::test_random_state_of_replicas",
    "PoplarExecutor.getTensorNames": _API + "test_anchors.py::test_names_are_readable_and_stable",
    "PoplarExecutor.getAnchoredTensor": _API + "test_anchors.py::test_gradients_and_weights",
    "PoplarExecutor.nan_report": "tests/run/floats/test_nan_report.py::test_forward",
    "PoplarExecutor.programs":
        "tests/api/calls/test_recompilation.py::test_programs_tell_their_signature_and_reason",
    "PoplarExecutor.compilationTime": _API + "test_inspection.py::test_times_need_a_run",
    **{f"PoplarExecutor.{name}": _API + "test_inspection.py::test_counters_of_each_step"
       for name in ("getPerfCounters", "getLatency", "getComputeLatency", "getHostIpuLatency",
                    "getIpuHostLatency")},
    **{name: _API + "test_inspection.py::test_hooks_run_around_each_compilation"
       for name in ("registerPreCompileHook", "registerPostCompileHook")},
}

_SCHEDULES = _API + "test_schedules.py::"
_STAGES = _STRATEGIES + "test_stages_can_be_asked_for"
_EXAMPLES = "tests/place/test_examples.py::test_places_of_the_examples"
PARALLEL = {
    "Block": _PLACES + "test_blocks_as_contexts",
    "Block.start": _PLACES + "test_blocks_without_scope_and_functions",
    "Block.useAutoId": _PLACES + "test_automatic_ids_begin_anew_when_told",
    "BlockFunction": _PLACES + "test_blocks_without_scope_and_functions",
    "BeginBlock": _PLACES + "test_blocks_of_modules_last_until_the_next",
    "removeBlocks": _API + "test_blocks.py::test_remove_blocks_works_on_all_parts",
    "module_repr": _STRATEGIES + "test_module_repr",
    "NameScope": _STRATEGIES + "test_name_scopes_are_prefixes",
    "estimate": "tests/estimate/test_fit.py::test_a_model_that_fits_needs_no_change",
    "analyze": "tests/estimate/test_analyze.py::test_all_refused_operations_are_listed",
    "Analysis": "tests/estimate/test_analyze.py::test_all_refused_operations_are_listed",
    "Analysis.refused": "tests/estimate/test_analyze.py::test_all_refused_operations_are_listed",
    **{f"Analysis.{name}":
       "tests/estimate/test_analyze.py::test_native_and_opaque_operations_and_their_work"
       for name in ("counts", "flops")},
    "Analysis.to_json": "tests/estimate/test_analyze.py::test_text_html_and_json",
    "fit": "tests/estimate/test_fit.py::test_a_model_that_fits_needs_no_change",
    "Fit": "tests/estimate/test_fit.py::test_a_model_that_fits_needs_no_change",
    "Fit.apply": "tests/estimate/test_fit.py::test_more_ipus_where_weights_alone_are_too_large",
    "PoplarExecutor.partition_summary": _STRATEGIES + "test_summary",
    "Stage": _STAGES,
    "Stage.blocks": _STAGES,
    "Stage.ipu": _STAGES,
    "Phase": _STAGES,
    "Phase.ipus": _STAGES,
    "Phase.stages": _STAGES,
    "ShardedExecution": _EXAMPLES,
    "ShardedExecution.stage": _STRATEGIES + "test_options_hold_strategies",
    "PipelinedExecution": _EXAMPLES,
    "PipelinedExecution.schedule": _SCHEDULES + "test_tasks_of_each_schedule",
    "PipelinedExecution.stage": _STAGES,
    "PoplarExecutor.schedule": _SCHEDULES + "test_tasks_of_each_schedule",
    "PoplarExecutor.timeline": _SCHEDULES + "test_idle_share_of_each_schedule",
    "SerialPhasedExecution": _EXAMPLES,
    "SerialPhasedExecution.phase": _STAGES,
    "SerialPhasedExecution.stage": _STAGES,
    "SerialPhasedExecution.setTensorsLiveness": _EXAMPLES,
    "SerialPhasedExecution.useSeparateBackwardPhase":
        "tests/place/test_examples.py::test_backward_phases",
    "ParallelPhasedExecution": _EXAMPLES,
    "ParallelPhasedExecution.phase": _EXAMPLES,
    "ParallelPhasedExecution.stage": _STRATEGIES + "test_options_hold_strategies",
    "ParallelPhasedExecution.useSeparateBackwardPhase":
        "tests/place/test_examples.py::test_backward_phases",
}

DATA = {
    "DataLoader": _DATA + "test_loader.py::test_combined_batch_size",
    "DataLoader.combinedBatchSize": _DATA + "test_loader.py::test_combined_batch_size",
    "DataLoader.options": _DATA + "test_loader.py::test_options_are_kept_and_frozen",
    "DataLoader.terminate": _DATA + "test_failures.py::test_terminate_while_loading_hangs",
    "AsynchronousDataAccessor": _DATA + "test_accessor.py::test_sources",
    "AsynchronousDataAccessor.terminate":
        _DATA + "test_failures.py::test_terminate_while_loading_hangs",
}

ARGUMENTS = {
    **{name: _API + "calls/test_custom_args.py::test_a_parser_has_both_methods" for name in (
        "ICustomArgParser", "ICustomArgParser.yieldTensors", "ICustomArgParser.reconstruct")},
    "registerCustomArgParser": _API + "calls/test_custom_args.py::test_register",
}

_EFFECTS = _API + "options/test_effects_data.py::"
_GROUPING = _API + "weights/test_replica_grouping.py::"
ENUMERATIONS = {
    "AnchorMode": _PROGRAMS + "test_options.py::test_names_of_old_releases",
    "AutoStage": _STRATEGIES + "test_broken_rules",
    "CommGroupType": _GROUPING + "test_input_groups_and_weight_groups",
    "ConnectionType":
        _API + "options/test_effects_device.py::test_connection_type_says_when_the_device_is_taken",
    "DataLoaderMode": _DATA + "test_loader.py::test_rebatched_workers_leave_out_nothing",
    "HalfFloatCastingBehavior": _PROGRAMS + "test_options.py::test_names_of_old_releases",
    "Liveness": _EXAMPLES,
    "MeanReductionStrategy":
        _EFFECTS + "test_running_mean_does_not_overflow_in_half",
    "OutputMode": _EFFECTS + "test_output_modes",
    "Recomputation": "tests/tasks/test_recompute.py::test_bytes",
    "PipelineSchedule": _SCHEDULES + "test_tasks_of_each_schedule",
    "ReductionType": _EFFECTS + "test_reduction_type",
    "SharingStrategy": _DATA + "test_accessor.py::test_a_fork_pickles_nothing",
    "VariableRetrievalMode": _GROUPING + "test_all_replicas_are_read",
    # What tells these members apart comes later.
    **{name: _API + "names/test_signatures.py::test_members" for name in (
        "MatMulSerializationMode", "MultiConvPlanType", "OverlapMode", "SyncPattern")},
}

_BESIDE = "tests/optim/test_beside_the_device.py::"
_OPTIMIZERS = ("Optimizer", "SGD", "Adam", "AdamW", "RMSprop", "LAMB")
TRAINING = {
    "identity_loss": _PROGRAMS + "test_executor.py::test_several_marked_losses_and_numbers",
    **{f"optim.{name}": _PROGRAMS + "test_optimizers.py::test_settings_that_are_none_or_neutral"
       for name in _OPTIMIZERS},
    **{f"optim.{name}.{method}": "tests/optim/test_resuming.py::test_training_goes_on_bit_for_bit"
       for name in _OPTIMIZERS for method in ("state_dict", "load_state_dict")},
    **{f"optim.{name}.step": "tests/optim/test_host_step.py::test_steps_on_the_cpu"
       for name in ("Optimizer", "RMSprop", "LAMB")},
    "optim.RMSprop.use_tf_variant":
        "tests/optim/test_host_step.py::test_the_variant_stays_what_it_is",
    **{f"optim.{name}.step": _BESIDE + "test_steps_on_the_host_with_states_of_the_device"
       for name in ("Adam", "AdamW")},
    "optim.MapGradients": "tests/own_step/test_map_gradients.py::test_what_it_takes",
    **{f"optim.MapGradients.{method}": "tests/own_step/test_map_gradients.py::"
       "test_groups_and_state_are_those_of_the_optimizer"
       for method in ("step", "add_param_group", "state_dict", "load_state_dict")},
    "optim.SGD.step": _BESIDE + "test_a_closure_on_the_host",
    **{f"optim.{name}.load_torch_state_dict": _BESIDE + "test_a_state_of_torch"
       for name in _OPTIMIZERS},
    **{f"optim.VariableAttributes{method}": "tests/optim/test_variable_attributes.py::test_marks"
       for method in ("", ".isConstant", ".markAsConstant", ".markAsVariable")},
}

_PRODUCTS = "tests/public_ops/test_serialized_matmul.py::"
COMPUTING = {
    "serializedMatMul": _PRODUCTS + "test_values_and_gradients_are_those_of_one_product",
    **{name: _PRODUCTS + "test_serialized_linear"
       for name in ("SerializedLinear", "SerializedLinear.forward")},
    **{f"set_overlap_for_{end}": _PUBLIC_OPS + "test_stream_overlap.py::test_streams_have_the_mode"
       for end in ("input", "output")},
    "MultiConv": _PUBLIC_OPS + "test_multi_conv.py::test_results_and_gradients_are_those_without",
    **{f"MultiConv.{name}": f"tests/device/test_settings.py::test_{test}"
       for name, test in {
           "availableMemoryProportions": "each_convolution_of_a_group_has_its_memory",
           "cycleBackOff": "cycle_back_off_takes_longer_and_fewer_tiles",
           "enableConvDithering": "dithering_of_a_multi_convolution",
           "partialsTypes": "partials_of_a_multi_convolution",
           "perConvReservedTiles": "reserved_tiles_are_never_faster",
           "planType": "a_parallel_multi_convolution_is_faster"}.items()},
    "recomputationCheckpoint":
        _API + "test_checkpoints.py::test_the_same_bits_in_less_memory",
    "nop": _PUBLIC_OPS + "test_tensor_hints.py::test_a_nop_stays_in_the_program",
    "set_available_memory":
        _PUBLIC_OPS
        + "test_tensor_hints.py::test_the_limit_is_on_the_operation_that_gave_the_tensor",
}

OWN = {
    "CPU": _PUBLIC_OPS + "test_host.py::test_training_as_eager",
    "CPU.__call__": _PUBLIC_OPS + "test_host.py::test_training_as_eager",
    "CPU.registerPersistentData": _PUBLIC_OPS + "test_host.py::test_kept_data",
    "CPU.execute": _PUBLIC_OPS + "test_host.py::test_kept_data",
    "ctc_beam_search_decoder": _PUBLIC_OPS + "test_decoding.py::test_as_told",
    "fps": _PUBLIC_OPS + "test_points.py::test_fps_as_told",
    "nearest": _PUBLIC_OPS + "test_points.py::test_nearest_as_told",
    "ipu_print_tensor": _PUBLIC_OPS + "test_printing.py::test_training_as_eager",
    "dynamic_slice": _PUBLIC_OPS + "test_dynamic.py::test_training_as_eager",
    "for_loop": _PUBLIC_OPS + "test_loops.py::test_training_as_eager",
    "cond": _PUBLIC_OPS + "test_loops.py::test_training_as_eager",
    "dynamic_update": _PUBLIC_OPS + "test_dynamic.py::test_training_as_eager",
}

NAMES = {**HELPERS, **OPTIONS, **EXECUTOR, **FILES, **PARALLEL, **DATA, **ARGUMENTS,
         **ENUMERATIONS, **TRAINING, **COMPUTING, **OWN}
