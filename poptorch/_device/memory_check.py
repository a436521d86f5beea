"""The error of a program that needs more memory than the tiles of its system have."""

from typing import Any

from poptorch import _C
from poptorch._device.cost_settings import settings_of, target_of
from poptorch._device.device import system_of
from poptorch.errors import Error, error_at, place_text
from poptorch.options import Options
from poptorch.options._target import rows

# What to change, by the category that needs most.
_ADVICE = {
    "activations": "use smaller micro-batches (Training.gradientAccumulation) or "
                   "recomputationCheckpoint",
    "stashes": "recompute them (Training.recomputation), move them to streaming memory "
               "(TensorLocations.setActivationLocation), or choose another "
               "PipelinedExecution.schedule",
    "parameters": "use a 16-bit type, or streaming memory (TensorLocations.setWeightLocation)",
    "optimizer": "use streaming memory (TensorLocations.setOptimizerLocation) or float16 states",
    "accumulators": "use streaming memory (TensorLocations.setAccumulatorLocation), or "
                    "accumulators in float16",
    "constants": "compute large constants in forward, or pass them as arguments",
    "temporary": "lower setAvailableMemoryProportion, or compute products in parts "
                 "(serializedMatMul)",
    "program": "use fewer different operations on this IPU",
}
_PROGRAM = ("code", "exchange", "vertex_state")


def check_tile_memory(executable: Any, options: Options) -> None:
    """Raises an Error if an IPU of a virtual system has too little memory on its tiles.

    Without a system there is no limit.
    """
    if system_of(options) is None:
        return
    target = target_of(options)
    limit = (rows()[target] if isinstance(target, str) else target)["tile_bytes"]
    memory = _C.tile_memory(executable.ir("place"), target, settings_of(options))
    fullest = max(memory, key=lambda ipu: ipu["peak_bytes"])
    if fullest["peak_bytes"] > limit:
        raise _error(fullest, limit, options.model_name)


def _error(ipu: dict[str, Any], limit: int, name: str) -> Error:
    sizes = _by_size(ipu["categories"])
    first = next(iter(sizes))
    step = ipu["steps"][ipu["peak_step"]] if ipu["steps"] else {}
    when = f", when it runs {step['op']}" if step else ""
    shares = ", ".join(f"{category} {size:,}" for category, size in sizes.items())
    live = "".join(f"\n  {value['bytes']:,} bytes: {value['name']}{_where(value)}"
                   for value in ipu["live_at_peak"][:3])
    return error_at(f"[memory] {name} does not fit: IPU {ipu['ipu']} needs "
                    f"{ipu['peak_bytes']:,} bytes on its fullest tile{when}, and a tile has "
                    f"{limit:,}. To need less for {first}, {_ADVICE[first]}; or use more IPUs. "
                    f"Bytes of all tiles: {shares}." + (f" The largest values:{live}" if live else
                                                        ""),
                    _place(step), step.get("module", ""))


def _by_size(categories: dict[str, int]) -> dict[str, int]:
    """Bytes on the chip by category, largest first; those of programs as one."""
    sizes = {name: size for name, size in categories.items()
             if name not in (*_PROGRAM, "streaming") and size > 0}
    sizes["program"] = sum(categories[name] for name in _PROGRAM)
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def _where(value: dict[str, Any]) -> str:
    place = place_text(_place(value), value["module"])
    return f" ({place})" if place else ""


def _place(row: dict[str, Any]) -> tuple[str, int] | None:
    file, _, line = row.get("location", "").rpartition(":")
    return (file, int(line)) if file else None
