"""What the device model goes by, from options: the kind of IPU, and the settings of its costs."""

from typing import Any

import torch

from poptorch._device import device, environment
from poptorch.options import Options
from poptorch.options._target import complete, rows

# Without a choice.
DEFAULT = "gc200"
_SMALL = "small"


def target_of(options: Options) -> str | dict[str, Any]:
    """The kind of IPU that estimates are for, as ``_C.op_costs`` takes it.

    The first of these that is chosen: ``Options.target``, the system, the version of
    ``useOfflineIpuTarget``, the small model of ``POPTORCH_SMALL_IPU_MODEL``; else Mk2.
    """
    if options.ipu_target is not None:
        return complete(options.ipu_target)
    system = device.system_of(options)
    if system is not None:
        return system.target
    version = options.offline_ipu_version
    if version is not None:
        return next(name for name, row in rows().items() if row["version"] == version)
    return _SMALL if environment.is_model_small(options) else DEFAULT


def settings_of(options: Options) -> dict[str, Any]:
    """The settings that change what operations cost, as ``_C.op_costs`` takes them."""
    return {
        "memory_proportion": dict(options.available_memory_proportion),
        "half_partials": options.Precision.partials_type is torch.float16,
        "stable_norm": options.enable_stable_norm,
        "dithering": options.Training.convolution_dithering,
        "io_tiles": options.TensorLocations.num_io_tiles,
        "replicas": options.replication_factor * options.Distributed.num_distributed_processes,
    }
