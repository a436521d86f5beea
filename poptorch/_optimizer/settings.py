"""Settings of optimizers that only the device has."""

import math

import torch

from poptorch._base.types import ir_dtype
from poptorch.errors import Error

_TYPES = (torch.float16, torch.bfloat16, torch.float32)
# The settings that give the types of the moments of gradients.
FIRST_MOMENT_TYPE = "first_order_momentum_accum_type"
SECOND_MOMENT_TYPE = "second_order_momentum_accum_type"
_OF_TORCH = {  # what an optimizer of torch.optim does
    "loss_scaling": 1.0, "velocity_scaling": 1.0, "use_combined_accum": False,
    "accum_type": None, "velocity_accum_type": None, FIRST_MOMENT_TYPE: None,
    SECOND_MOMENT_TYPE: None, "max_grad_norm": math.inf, "bias_correction": True,
}
# The defaults of those of poptorch.optim: sums and states are of single precision.
SETTINGS = {name: torch.float32 if name.endswith("_type") else value
            for name, value in _OF_TORCH.items()}
# One number or switch for all parameter groups; numbers are streamed.
SHARED = ("loss_scaling", "max_grad_norm")


class DeviceSettings:
    """Has such settings as attributes: the optimizers of ``poptorch.optim``."""


def groups_of(optimizer: torch.optim.Optimizer) -> list[dict]:
    """The parameter groups, each with every setting of the device: its own value, else that of the
    optimizer, else the neutral one. Settings that groups share are those of the first group."""
    neutral = SETTINGS if isinstance(optimizer, DeviceSettings) else _OF_TORCH
    own = vars(optimizer) if isinstance(optimizer, DeviceSettings) else {}
    common = {name: value if own.get(name) is None else own[name]
              for name, value in neutral.items()}
    groups = [{**common, **{key: value for key, value in group.items()
                            if value is not None or key not in neutral}}
              for group in optimizer.param_groups]
    for own, group in zip(optimizer.param_groups[1:], groups[1:]):
        group |= {name: groups[0][name] for name in SHARED if own.get(name) is None}
    return groups


def is_combined(group: dict) -> bool:
    """Whether one tensor holds gradients and velocity. Without momentum there is no velocity."""
    return bool(group.get("use_combined_accum") and group.get("momentum"))


def shared(optimizer: torch.optim.Optimizer, groups: list[dict]) -> dict[str, float]:
    """The settings that all groups share; an Error if a group has another value."""
    found = {name: groups[0][name] for name in SHARED}
    for number, group in enumerate(groups):
        for name, value in found.items():
            if group[name] != value:
                raise Error(f"[optim.{type(optimizer).__name__}] {name} is {value!r} for parameter "
                            f"group 0 and {group[name]!r} for parameter group {number}, it is one "
                            f"number for all groups. Set it as an attribute of the optimizer.")
    return {name: float(value) for name, value in found.items()}


def dtype_of(group: dict, name: str | None, parameter: torch.dtype) -> torch.dtype:
    """The type that the setting ``name`` of a group gives to a tensor whose parameter or gradient
    has the type ``parameter``. ``name`` is None if no setting determines the type."""
    wanted = None if name is None else group[name]
    # float64 is there for proofs of correctness only, where all is of that type.
    return parameter if wanted is None or ir_dtype(parameter) == "f64" else wanted


def check(optimizer) -> None:
    """Raises an Error if a setting of an optimizer or of its groups has an invalid value."""
    name_of = f"optim.{type(optimizer).__name__}"
    own = vars(optimizer) if isinstance(optimizer, DeviceSettings) else {}
    for where, settings in [("", own), *(
            (f" of parameter group {number}", group)
            for number, group in enumerate(getattr(optimizer, "param_groups", ())))]:
        for name in SETTINGS:
            value = settings.get(name)
            wanted = None if value is None else _wanted(name, value)
            if wanted is not None:
                raise Error(f"[{name_of}] {name}{where} must be {wanted}, got {value!r}. Set "
                            f"another value, or None for the default.")
        if own.get("use_combined_accum") and settings.get("nesterov"):
            raise Error(f"[{name_of}] use_combined_accum=True{where} with nesterov=True: the "
                        f"gradient cannot be separated from the velocity that is combined with it. "
                        f"Use only one of the two.")


def _wanted(name: str, value) -> str | None:
    """What a value must be; None: it is valid."""
    if name.endswith("_type"):
        known = ", ".join(map(str, _TYPES))
        return None if value in _TYPES else f"one of {known}"
    if isinstance(SETTINGS[name], bool):
        return None if isinstance(value, bool) else "True or False"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if name == "max_grad_norm":
        return None if is_number and value > 0 else "a number above 0"
    return None if is_number and 0 < value < math.inf else "a finite number above 0"
