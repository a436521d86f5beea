"""The form of a row of ``rows.py``: everything that other code uses of a kind of optimizer.

docs/internals/add_an_optimizer.md says how to write a row.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import torch

from poptorch._base.types import real_dtype
from poptorch._optimizer.settings import dtype_of, is_combined

# What all kinds have: a setting shared by all parameters, and the count of updates.
LOSS_SCALING = "lossScaling_FLOAT"
FINAL_LOSS_SCALE = "finalLossScale"
STEP = "Step"
COUNT = "step"

# What an optimizer has once for all parameters stands under this key in its state: by key, the name
# in ``ipu_state`` and the initial value.
GLOBAL = "loss_scale"
GLOBAL_STATES = {"factor": ("lossScaleUpdateFactor", 1.0),
                 "quiet_updates": ("lossScaleQuietUpdates", 0.0)}
GLOBAL_NAMES = {name: key for key, (name, _) in GLOBAL_STATES.items()}


@dataclass(frozen=True)
class Hyper:
    """One number of the hyper-parameter vector.

    ``value`` stands for None in the group; without it None is an error. Where a velocity is
    combined, the number is multiplied by the power ``velocity_power`` of ``velocity_scaling``, so
    that the update keeps the velocity times ``velocity_scaling``.
    """

    name: str
    key: str
    value: float | None = None
    velocity_power: int = 0

    @property
    def group_key(self) -> str:
        """The key of the parameter group, without the index of an item."""
        return self.key.partition(".")[0]

    def of(self, group: dict) -> float:
        """The number for one parameter group; a ValueError if the group holds something else."""
        key, _, index = self.key.partition(".")
        held = group[key]
        try:
            value = held[int(index)] if index else held
            if isinstance(value, (str, bytes)):
                raise TypeError
            number = float(self.value if value is None else value)
        except (TypeError, ValueError, LookupError):
            wanted = "numbers" if index else "a number, or a tensor of one element"
            raise ValueError(f"[setOptimizer] {key} of a parameter group is {held!r}, expected "
                             f"{wanted}. Set it in param_groups.") from None
        return number * _velocity_factor(group, self.velocity_power)


def _velocity_factor(group: dict, power: int) -> float:
    return float(group["velocity_scaling"]) ** power if power and is_combined(group) else 1.0


def number_type() -> torch.dtype:
    """The type that torch's optimizers give to counts and to states without dimensions."""
    return torch.float64 if torch.get_default_dtype() is torch.float64 else torch.float32


def multiplied(value: torch.Tensor, factor: float) -> torch.Tensor:
    """A tensor times a factor, computed in double precision, in single precision at least."""
    if factor == 1:
        return value
    wide = value if value.is_complex() else value.double()
    return (wide * factor).to(torch.promote_types(value.dtype, torch.float32))


@dataclass(frozen=True)
class StateTensor:
    """A tensor that the update keeps for each parameter.

    ``key`` is its name in torch's optimizer and the op, ``outside`` that in ``ipu_state`` and of
    anchors, without the parameter's. The device has it multiplied by the power ``velocity_power``
    of ``velocity_scaling``.
    """

    key: str
    outside: str
    when: str | None = None
    has_no_dims: bool = False
    type_setting: str | None = None
    initial: float | Callable[[dict], float] = 0.0
    velocity_power: int = 0
    sizes: Callable[[list[int]], list[int] | None] | None = None

    def of(self, parameter: str) -> str:
        return f"{self.outside}___{parameter}"

    def is_in(self, group: dict) -> bool:
        return self.when is None or bool(group.get(self.when))

    def initial_in(self, group: dict) -> float:
        return float(self.initial(group)) if callable(self.initial) else self.initial

    def scale_in(self, group: dict) -> float:
        """The factor that the device has it multiplied by, in a group."""
        return _velocity_factor(group, self.velocity_power)

    def sizes_for(self, parameter: Sequence[int]) -> list[int] | None:
        """Its sizes for a parameter of these sizes; None: such a parameter does not have it."""
        if self.has_no_dims:
            return []
        return list(parameter) if self.sizes is None else self.sizes(list(parameter))

    def dtype_for(self, parameter: torch.Tensor, group: dict) -> torch.dtype:
        if self.has_no_dims:
            return number_type()
        return dtype_of(group, None if is_combined(group) else self.type_setting,
                        real_dtype(parameter.dtype))

    def _host_dtype(self, parameter: torch.Tensor, group: dict) -> torch.dtype:
        dtype = self.dtype_for(parameter, group)
        return dtype if self.has_no_dims else torch.promote_types(dtype, parameter.dtype)

    def before(self, parameter: torch.Tensor, group: dict) -> torch.Tensor:
        value, dtype = self.initial_in(group), self._host_dtype(parameter, group)
        return torch.full(self.sizes_for(parameter.shape),
                          complex(value, value) if dtype.is_complex else value, dtype=dtype)

    def on_device(self, value: torch.Tensor, parameter: torch.Tensor, group: dict) -> torch.Tensor:
        """A value of the host in the form that the device has."""
        scale = self.scale_in(group)
        return value if scale == 1 else \
            multiplied(value, scale).to(self._host_dtype(parameter, group))


@dataclass(frozen=True)
class Setting:
    """A number that an update uses, as ``ipu_param`` and anchors show it: the product of the
    hyper-parameters in ``hyper``, 1 minus that, or that divided by the loss scale."""

    name: str
    hyper: tuple[str, ...]
    is_complement: bool = False
    over_loss_scale: bool = False

    def of(self, parameter: str) -> str:
        return f"{self.name}___specific___{parameter}"


# Of a parameter with a combined velocity. No update uses it by itself.
VELOCITY_SCALING = Setting("velocityScaling", ())


@dataclass(frozen=True)
class OptimizerSpec:
    """One kind of optimizer.

    Attributes:
        cls: of torch, or a class of the same meaning. Its subclasses are of this kind unless they
            have a row of their own. Its name stands in messages and files.
        op: of the update; its attributes are the flags.
        formula: a function on tensors, see ``formulas.py``; with an op, for the CPU alone.
        constants: keys of groups that a formula has as Python values and that are compiled in.
        sums_all: but for sums of all elements the formula goes element by element.
        uses_sizes: the formula depends on the sizes of the parameter, and is captured for each.
        doc: one line for the reference.
    """

    cls: type
    hyper: tuple[Hyper, ...]
    flags: tuple[str, ...]
    states: tuple[StateTensor, ...]
    settings: tuple[Setting, ...]
    op: str | None = None
    formula: Callable | None = None
    constants: tuple[str, ...] = ()
    is_elementwise: bool = True
    sums_all: bool = False
    uses_sizes: bool = False
    counts: bool = True
    doc: str = ""

    @property
    def name(self) -> str:
        return self.cls.__name__

    @property
    def acts_on_parts(self) -> bool:
        """Whether replicas can each update a part of a tensor."""
        return self.is_elementwise or self.sums_all

    def hyper_values(self, group: dict) -> list[float]:
        return [hyper.of(group) for hyper in self.hyper]

    def compiled_values(self, group: dict) -> dict:
        """The flags of a group, and what else of it the formula has as a Python value."""
        return {**{name: bool(group.get(name)) for name in self.flags},
                **{name: tuple(group[name]) if isinstance(group[name], list) else group[name]
                   for name in self.constants}}

    def compiled_in(self, group: dict) -> tuple:
        """What of a group is part of the program: its flags and constants, and which states it has.
        """
        return (*self.compiled_values(group).values(),
                *(state.is_in(group) for state in self.states))

    def states_of(self, group: dict, parameter: Sequence[int]) -> list[StateTensor]:
        """The states that a parameter of these sizes has, in a group."""
        return [state for state in self.states
                if state.is_in(group) and state.sizes_for(parameter) is not None]

    def is_before(self, values: dict[str, torch.Tensor], group: dict | None) -> bool:
        """Whether states of a parameter, by torch's keys, with its count, are those before the
        first update. Without a group all begins at zero."""
        initial = {} if group is None else {state.key: state.initial_in(group)
                                            for state in self.states}
        return all((torch.as_tensor(value) == initial.get(key, 0.0)).all()
                   for key, value in values.items())

    def evaluate(self, fixed: dict, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Computes the formula from the flags and ``dtype`` (``fixed``) and the tensors, all by
        their names in the formula. Returns the new ``param``, and the new states by torch's keys.
        """
        missing = {state.key: None for state in self.states if state.key not in tensors}
        x = SimpleNamespace(**fixed, **missing, **tensors)
        if fixed.get("maximize"):
            x.grad = -x.grad
        return self.formula(x)

    def setting_values(self, group: dict) -> list[tuple[Setting, float]]:
        values = dict(zip((hyper.name for hyper in self.hyper), self.hyper_values(group)))
        found = []
        for setting in self.settings:
            product = math.prod(values[name] for name in setting.hyper)
            value = 1.0 - product if setting.is_complement else product
            scale = group.get("loss_scaling", 1.0) if setting.over_loss_scale else 1.0
            found.append((setting, value / scale))
        return found
