"""For each option setter the test that fails when it does nothing.

Setters whose effect belongs to later work, and deprecated ones, need no line: their tests follow
from their rows.
"""

from tests.api.options.option_cases import CASES
from tests.docs.reference_pages import GROUPS

_DATA = "tests/api/options/test_effects_data.py::"
_DEVICE = "tests/api/options/test_effects_device.py::"
_REPORTS = "tests/api/options/test_effects_reports.py::"
_LOCATIONS = "tests/api/options/test_tensor_locations.py::"
_POPART = "tests/api/options/test_options_popart.py::"

EFFECTS = {
    "deviceIterations": _DATA + "test_device_iterations_divide_the_batch",
    "replicationFactor": _DATA + "test_replication_divides_the_batch",
    "inputReplicaGrouping": _DATA + "test_input_groups",
    "outputMode": _DATA + "test_output_modes",
    "anchorTensor": "tests/api/test_anchors.py::test_gradients_and_weights",
    "randomSeed": _DATA + "test_random_seed",
    "enableSyntheticData": _DATA + "test_synthetic_data",
    "broadcastBuffers": _DATA + "test_broadcast_buffers",
    "updatableNamedBuffers": _DATA + "test_updatable_named_buffers",
    "relaxOptimizerAttributesChecks": _REPORTS + "test_unexpected_optimizer_attributes",
    "setExecutionStrategy": _DEVICE + "test_execution_strategy",
    "useIpuModel": _DEVICE + "test_use_ipu_model",
    "useIpuId": _DEVICE + "test_one_executor_holds_a_device",
    "system": "tests/device/test_systems.py::test_the_option_chooses_the_system",
    "setAvailableMemoryProportion":
        "tests/device/test_settings.py::test_each_ipu_has_its_proportion",
    "timeout": "tests/run/test_timeout.py::"
               "test_a_late_call_is_an_error_and_the_next_one_runs[inline]",
    "enableStableNorm": "tests/device/test_settings.py::test_stable_norms_take_longer",
    "Training.setConvolutionDithering":
        "tests/device/test_settings.py::test_dithering_lowers_the_fullest_tile",
    "target": "tests/device/test_targets.py::test_what_chooses_the_target",
    "useOfflineIpuTarget": _DEVICE + "test_models_that_never_run",
    "connectionType": _DEVICE + "test_connection_type_says_when_the_device_is_taken",
    "syncPattern": "tests/place/test_facts.py::"
                   "test_which_ipus_meet[SyncPattern.SinglePipeline-single_pipeline]",
    "autoRoundNumIPUs": _DEVICE + "test_number_of_ipus_must_be_a_power_of_two",
    "recompilation":
        "tests/api/calls/test_recompilation.py::test_programs_tell_their_signature_and_reason",
    "showCompilationProgressBar": _REPORTS + "test_progress_bar_and_model_name",
    "logDir": _REPORTS + "test_log_dir",
    "maxRepeatLogs": _REPORTS + "test_max_repeat_logs",
    "modelName": _REPORTS + "test_progress_bar_and_model_name",
    "enableExecutableCaching": "tests/files/test_cache.py::"
                               "test_a_second_model_compiles_nothing_and_has_the_same_bits",
    "limitExecutableCache": "tests/files/test_cache.py::test_the_entries_used_last_stay",
    "logCycleCount": _REPORTS + "test_cycles_of_each_run_are_logged",
    "enableProfiling": _REPORTS + "test_profile_report",
    "sourceLocationExcludes": _REPORTS + "test_location_excludes",
    "appendToLocationExcludes": _REPORTS + "test_location_excludes",
    "disableModuleNamescope": _REPORTS + "test_module_namescope",
    **{f"TensorLocations.set{kind}Location": f"{_LOCATIONS}test_each_kind_moves[{kind}]"
       for kind in ("Weight", "Optimizer", "Accumulator", "Activation")},
    "TensorLocationSettings.useOnChipStorage": _LOCATIONS + "test_each_kind_moves[Weight]",
    "TensorLocations.numIOTiles": "tests/place/test_facts.py::test_tiles_that_only_transfer["
                                  "WithoutBlocks-kind=\"sharded\", stages=1]",
    "TensorLocationSettings.useIOTilesToLoad": _LOCATIONS + "test_io_tiles_load_and_store[Weight]",
    "TensorLocationSettings.useIOTilesToStore": _LOCATIONS + "test_io_tiles_load_and_store[Weight]",
    "TensorLocationSettings.minElementsForOffChip": _LOCATIONS + "test_small_tensors_stay",
    "TensorLocationSettings.useReplicatedTensorSharding":
        "tests/translate/test_sharding.py::test_each_replica_has_a_part_of_the_states[2]",
    "TensorLocationSettings.minElementsForReplicatedTensorSharding":
        "tests/translate/test_sharding.py::test_small_tensors_stay_whole",
    "Training.gradientAccumulation": _DATA + "test_accumulation",
    "Training.accumulationAndReplicationReductionType": _DATA + "test_reduction_type",
    "Training.setMeanAccumulationAndReplicationReductionStrategy":
        _DATA + "test_running_mean_does_not_overflow_in_half",
    "Training.optimizerOnHost":
        "tests/own_step/test_on_host.py::test_gradients_are_left_for_the_program",
    "Training.recomputation": "tests/tasks/test_recompute.py::test_bytes",
    "Training.gradientClipping": "tests/optim/test_clipping.py::test_the_option",
    "Training.setAutomaticLossScaling":
        "tests/optim/test_automatic_loss_scaling.py::test_an_overflow_is_skipped",
    "Precision.enableStochasticRounding":
        "tests/translate/test_rounding.py::test_each_step_and_replica_rounds_anew",
    "Precision.setPartialsType":
        "tests/translate/test_float16_partials.py::test_it_differs_measurably",
    "deterministic": "tests/run/test_determinism.py::test_convolutions_of_onednn",
    "Precision.enableFloatingPointExceptions":
        "tests/run/floats/test_float_exceptions.py::test_conditions",
    "Precision.recordNonFinite": "tests/run/floats/test_nan_report.py::test_forward",
    "Distributed.configureProcessId": _DATA + "test_training_in_several_processes_is_refused",
    "Distributed.disable": _DATA + "test_training_in_several_processes_is_refused",
    "Distributed.setEnvVarNames":
        "tests/api/options/test_options_environment.py::test_launcher_variables",
    "_Popart.set": _POPART + "test_a_key_with_a_counterpart_sets_it",
    "_Popart.setPatterns": _POPART + "test_patterns",
}


def setters() -> dict[str, tuple[type, str]]:
    """Every setter by its dotted name: the class that has it, and its name there."""
    found = {case.name: (GROUPS["Options"], case.name) for case in CASES if "." not in case.name}
    for name, kind in GROUPS.items():
        prefix = kind._PREFIX
        found |= {prefix + row.setter: (kind, row.setter) for row in kind._ROWS if row.setter}
        found |= {case.name: (kind, case.name.removeprefix(prefix)) for case in CASES
                  if prefix and case.name.startswith(prefix)}
    return {**found, "_Popart.set": (GROUPS["Options._Popart"], "set")}


def test_of(name: str) -> str:
    """The test of a setter's effect, as pytest names it.

    Raises:
        KeyError: It should have an effect, and no line above says which test shows it.
    """
    kind, method = setters()[name]
    rows = [row for row in kind._ROWS if row.setter == method]
    if rows and all(row.deprecated for row in rows):
        return f"tests/api/options/test_options.py::test_deprecated_setters_say_so[{name}]"
    if rows and all(row.later for row in rows):
        if kind is GROUPS["TensorLocationSettings"]:
            return "tests/api/options/test_options.py::test_location_setters"
        return f"tests/api/options/test_options.py::test_setter_sets_and_can_be_chained[{name}]"
    return EFFECTS[name]


test_of.__test__ = False  # pytest collects functions of this name
