"""One row for each setter of the options: good arguments, what they give, and bad ones."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

import poptorch
from poptorch.options._group import OptionGroup


class Strategy(poptorch.options._IExecutionStrategy):
    """A strategy for setExecutionStrategy."""

    def __repr__(self):
        return "Strategy()"


@dataclass(frozen=True)
class Case:
    """A setter on ``Options`` or one of its groups.

    Attributes:
        name: dotted from the options object.
        arguments: that change the option.
        gives: what is read afterwards, by snake_case name.
        wrong_type: arguments that raise a TypeError; None where every type is good.
        out_of_range: arguments that raise a ValueError or AssertionError; None where none do.
    """

    name: str
    arguments: tuple
    gives: dict[str, Any]
    wrong_type: tuple | None = ("wrong",)
    out_of_range: tuple | None = None


OFF_CHIP = poptorch.TensorLocationSettings(onChip=False)
_LOCATION = {**poptorch.TensorLocationSettings().toDict(), "onChip": False}

CASES = [
    Case("deviceIterations", (4,), {"device_iterations": 4}, ("4",), (0,)),
    Case("replicationFactor", (2,), {"replication_factor": 2}, (2.0,), (0,)),
    Case("inputReplicaGrouping", (2, poptorch.CommGroupType.Orthogonal),
         {"input_group_size": 2, "input_group_type": poptorch.CommGroupType.Orthogonal},
         (2, "Orthogonal"), (2, poptorch.CommGroupType.All)),
    Case("outputMode", (poptorch.OutputMode.EveryN, 3),
         {"output_mode": poptorch.OutputMode.EveryN, "output_return_period": 3},
         ("All",), (poptorch.OutputMode.EveryN,)),
    Case("anchorTensor", ("w", "fc.weight", poptorch.OutputMode.EveryN, 2),
         {"anchored_tensors": {"w": ("fc.weight", poptorch.OutputMode.EveryN, 2)}},
         ("w", 3), ("", "fc.weight")),
    Case("randomSeed", (42,), {"random_seed": 42}, ("x",), (2**64,)),
    Case("enableSyntheticData", (True,), {"enable_synthetic_data": True}),
    Case("broadcastBuffers", (False,), {"broadcast_buffers": False}),
    Case("updatableNamedBuffers", (["b"],), {"updatable_named_buffers": ["b"]}, ("b",)),
    Case("relaxOptimizerAttributesChecks", (), {"relax_optimizer_attributes_checks": True}),
    Case("setExecutionStrategy", (Strategy(),), {"execution_strategy": Strategy()}),
    Case("setAvailableMemoryProportion", ({"IPU0": 0.5},),
         {"available_memory_proportion": {0: 0.5}}, (0.5,), ({"IPU0": 1.5},)),
    Case("timeout", (0.5,), {"timeout_s": 0.5}, ("1",), (0,)),
    Case("enableStableNorm", (True,), {"enable_stable_norm": True}),
    Case("useIpuModel", (True,), {"use_ipu_model": True}, (1,)),
    Case("system", ("pod16",), {"ipu_system": "pod16"}, (16,), ("pod8",)),
    Case("target", ("bow",), {"ipu_target": "bow"}, (3,), ("gc3",)),
    Case("useOfflineIpuTarget", (21,), {"offline_ipu_version": 21}, ("2",), (3,)),
    Case("connectionType", (poptorch.ConnectionType.Never,),
         {"connection_type": poptorch.ConnectionType.Never}),
    Case("useIpuId", (3,), {"ipu_id": 3}, (None,), (-1,)),
    Case("autoRoundNumIPUs", (), {"auto_round_num_ipus": True}),
    Case("deterministic", (True,), {"is_deterministic": True}),
    Case("syncPattern", (poptorch.SyncPattern.SinglePipeline,),
         {"sync_pattern": poptorch.SyncPattern.SinglePipeline}),
    Case("enableExecutableCaching", ("/cache",), {"executable_cache_path": "/cache"}, (3,)),
    Case("limitExecutableCache", (100,), {"executable_cache_max_bytes": 100}, ("1",), (0,)),
    Case("logCycleCount", (True,), {"log_cycle_count": True}),
    Case("recompilation", (False, True, 1),
         {"recompilation_values": False, "recompilation_shapes": True, "recompilation_limit": 1},
         (1,), (True, False, 0)),
    Case("showCompilationProgressBar", (False,), {"show_compilation_progress_bar": False}),
    Case("logDir", ("/logs",), {"log_dir": "/logs"}, (3,)),
    Case("maxRepeatLogs", (None,), {"max_repeat_logs": None}, ("4",), (0,)),
    Case("modelName", ("net",), {"model_name": "net"}, (3,), ("a/b",)),
    Case("enableProfiling", ("/profile",), {"profile_dir": "/profile"}, (3,)),
    Case("sourceLocationExcludes", (["/x/"],), {"source_location_excludes": ["/x/"]}, ("/x/",)),
    Case("appendToLocationExcludes", ("/x/",),
         {"source_location_excludes": [*poptorch.Options().source_location_excludes, "/x/"]},
         (3,)),
    Case("disableModuleNamescope", (), {"module_namescope_enabled": False}, None),
    Case("Training.optimizerOnHost", (True,), {"optimizer_on_host": True}, ("yes",)),
    Case("Training.gradientAccumulation", (8,), {"gradient_accumulation": 8}, (None,), (-1,)),
    Case("Training.accumulationAndReplicationReductionType", (poptorch.ReductionType.Sum,),
         {"accumulation_and_replication_reduction_type": poptorch.ReductionType.Sum},
         ("Sum",), (poptorch.ReductionType.NoReduction,)),
    Case("Training.setMeanAccumulationAndReplicationReductionStrategy",
         (poptorch.MeanReductionStrategy.Running,),
         {"mean_accumulation_and_replication_reduction_strategy":
          poptorch.MeanReductionStrategy.Running}),
    Case("Training.recomputation", (poptorch.Recomputation.Off,),
         {"recompute": poptorch.Recomputation.Off}, ("Off",)),
    Case("Training.setAutomaticLossScaling", (True,), {"automatic_loss_scaling": True}),
    Case("Training.gradientClipping", (1, 0.5),
         {"gradient_clip_norm": 1.0, "gradient_clip_value": 0.5}, ("1",), (0.0,)),
    Case("Training.setConvolutionDithering", (True,), {"convolution_dithering": True}),
    Case("Precision.enableFloatingPointExceptions", (True,), {"floating_point_exceptions": True}),
    Case("Precision.recordNonFinite", (True,), {"record_non_finite": True}),
    Case("Precision.enableStochasticRounding", (True,), {"stochastic_rounding": True}),
    Case("Precision.setPartialsType", (torch.half,), {"partials_type": torch.float16},
         ("half",), (torch.int32,)),
    Case("Precision.halfFloatCasting", (poptorch.HalfFloatCastingBehavior.HalfUpcastToFloat,),
         {"half_float_casting": poptorch.HalfFloatCastingBehavior.HalfUpcastToFloat}),
    Case("Precision.runningStatisticsAlwaysFloat", (False,),
         {"running_statistics_always_float": False}),
    Case("Precision.autocastEnabled", (False,), {"autocast_enabled": False}),
    Case("TensorLocations.numIOTiles", (64,), {"num_io_tiles": 64}, None, (33,)),
    Case("TensorLocations.setActivationLocation", (OFF_CHIP,), {"location_activation": _LOCATION}),
    Case("TensorLocations.setWeightLocation", (OFF_CHIP,), {"location_weight": _LOCATION}),
    Case("TensorLocations.setOptimizerLocation", (OFF_CHIP,), {"location_optimizer": _LOCATION}),
    Case("TensorLocations.setAccumulatorLocation", (OFF_CHIP,),
         {"location_accumulator": _LOCATION}),
    Case("Distributed.configureProcessId", (1, 2),
         {"num_distributed_processes": 2, "distributed_process_id": 1}, ("1", 2), (2, 2)),
    Case("Distributed.disable", (), {"num_distributed_processes": 1}, None),
    Case("Distributed.setEnvVarNames", ("OPTION_CASE_SIZE", "OPTION_CASE_RANK"),
         {"num_distributed_processes": 3, "distributed_process_id": 2}, None,
         ("OPTION_CASE_SIZE", "no")),
    Case("Distributed.IPUoFConfigFiles", ("/etc/a.conf",), {"ipuof_configs": ["/etc/a.conf"]},
         (3,)),
    Case("Jit.traceModel", (False,), {"trace_model": False}),
]
BY_NAME = {case.name: case for case in CASES}

# Public methods of the groups that set no option.
OTHER_METHODS = {"anchorMode", "checkIsFrozen", "toDict", "fromDict", "clone", "defaultOutputMode",
                 "loadFromFile", "set", "setPatterns", "check_known"}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """The variables that ``Distributed.setEnvVarNames`` is given in ``CASES``."""
    monkeypatch.setenv("OPTION_CASE_SIZE", "3")
    monkeypatch.setenv("OPTION_CASE_RANK", "2")


def resolve(options: poptorch.Options, name: str) -> tuple[OptionGroup, Any]:
    """The group and the bound method that a dotted name means."""
    *groups, method = name.split(".")
    target = options
    for part in groups:
        target = getattr(target, part)
    return target, getattr(target, method)
