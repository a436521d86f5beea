"""The form of a row of ``rows.py``: all that other code uses of a kind of optimizer.

From a row follow the update ops of a program, what crosses to the device and back, the names in
``state_dict()`` and of anchors, the checks of ``setOptimizer``, the entry in files, and the table
in docs/reference/optimizers.md. docs/internals/add_an_optimizer.md says how to write one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import torch

from poptorch._optimizer.settings import dtype_of, is_combined

# What all kinds have: a setting shared by all parameters, and the count of updates.
LOSS_SCALING = "lossScaling_FLOAT"
FINAL_LOSS_SCALE = "finalLossScale"
STEP = "Step"
COUNT = "step"

# The settings that say of what type the moments of gradients are.
FIRST_MOMENT_TYPE = "first_order_momentum_accum_type"
SECOND_MOMENT_TYPE = "second_order_momentum_accum_type"

# What an optimizer has once for all parameters stands under this key in its state: name there, and
# in ``ipu_state``, with its value in the beginning.
GLOBAL = "loss_scale"
GLOBAL_STATES = {"factor": ("lossScaleUpdateFactor", 1.0),
                 "quiet_updates": ("lossScaleQuietUpdates", 0.0)}
GLOBAL_NAMES = {name: key for key, (name, _) in GLOBAL_STATES.items()}


@dataclass(frozen=True)
class Hyper:
    """One number of the hyper-parameter vector, streamed in: its change recompiles nothing.

    Attributes:
        name: what the row calls it.
        key: of the parameter group; ``betas.0`` is the first item of ``betas``. None: a constant.
        value: of the constant, and where the group holds None; None: it may not.
        velocity_power: the power of ``velocity_scaling`` by which it is multiplied where that is
            used, so that the update keeps the velocity times ``velocity_scaling``.
    """

    name: str
    key: str | None
    value: float | None = None
    velocity_power: int = 0

    def of(self, group: dict) -> float:
        """The number for one parameter group.

        Raises:
            ValueError: The group holds what is no number.
        """
        if self.key is None:
            return self.value
        key, _, index = self.key.partition(".")
        held = group[key]
        try:
            value = held[int(index)] if index else held
            value = self.value if value is None else value
            number = float(value) if not isinstance(value, (str, bytes)) else None
        except (TypeError, ValueError, LookupError):
            number = None
        if number is None:
            wanted = "numbers" if index else "a number, or a tensor of one element"
            raise ValueError(f"[setOptimizer] {key} of a parameter group is {held!r}, expected "
                             f"{wanted}. Set it in param_groups.")
        return number * _velocity_factor(group, self.velocity_power)


def _velocity_factor(group: dict, power: int) -> float:
    return float(group["velocity_scaling"]) ** power if power and is_combined(group) else 1.0


def number_type() -> torch.dtype:
    """Of what type torch's optimizers have states without dimensions, and counts of updates."""
    return torch.float64 if torch.get_default_dtype() is torch.float64 else torch.float32


def multiplied(value: torch.Tensor, factor: float) -> torch.Tensor:
    """A tensor times a factor, in single precision at least, with one rounding."""
    if factor == 1:
        return value
    return (value.double() * factor).to(torch.promote_types(value.dtype, torch.float32))


def divided(value: torch.Tensor, factor: float) -> torch.Tensor:
    """What :func:`multiplied` makes into ``value``."""
    if factor == 1:
        return value
    return (value.double() / factor).to(torch.promote_types(value.dtype, torch.float32))


@dataclass(frozen=True)
class StateTensor:
    """A tensor that the update keeps for each parameter.

    Attributes:
        key: what torch's optimizer calls it in ``state[parameter]``.
        outside: its name in ``ipu_state`` and of anchors, without the parameter's.
        operand: of the op, and its result; None: the key.
        when: the group key that enables it, if not all groups have it.
        has_no_dims: it is one number, not of the parameter's shape.
        dtype: on the device; None: what the setting says, and for one number what torch's
            optimizers have for it: single precision, but double where that is torch's default.
        type_setting: the setting of the device that says what dtype it has; None, or where that
            is None: the parameter's.
        initial: of all its elements, before the first update: a number, or a function of the
            parameter group that gives it.
        velocity_power: as that of ``Hyper``: by which the device has it multiplied.
        sizes: its sizes by those of the parameter, None where a parameter of these sizes does not
            have it; without a function they are the parameter's.
    """

    key: str
    outside: str
    operand: str | None = None
    when: str | None = None
    has_no_dims: bool = False
    dtype: torch.dtype | None = None
    type_setting: str | None = None
    initial: float | Callable[[dict], float] = 0.0
    velocity_power: int = 0
    sizes: Callable[[list[int]], list[int] | None] | None = None

    def is_in(self, group: dict) -> bool:
        """Whether parameters of a group have it."""
        return self.when is None or bool(group.get(self.when))

    def initial_in(self, group: dict) -> float:
        """The value of all its elements before the first update, for parameters of a group."""
        return float(self.initial(group)) if callable(self.initial) else self.initial

    def scale_in(self, group: dict) -> float:
        """By what the device has it multiplied, for parameters of a group."""
        return _velocity_factor(group, self.velocity_power)

    def on_device(self, value: torch.Tensor, parameter: torch.Tensor, group: dict) -> torch.Tensor:
        """A value of the host as the device has it, for a parameter of a group."""
        scale = self.scale_in(group)
        return value if scale == 1 else \
            multiplied(value, scale).to(self.type_of(parameter, group)[0])

    def sizes_for(self, parameter: Sequence[int]) -> list[int] | None:
        """Its sizes for a parameter of these sizes; None if that does not have it."""
        if self.has_no_dims:
            return []
        return list(parameter) if self.sizes is None else self.sizes(list(parameter))

    def of(self, parameter: str) -> str:
        """Its name outside, for one parameter."""
        return f"{self.outside}___{parameter}"

    def before(self, parameter: torch.Tensor, group: dict) -> torch.Tensor:
        """The whole of it before the first update of a parameter, in a group."""
        dtype, sizes = self.type_of(parameter, group)
        return torch.full(sizes, self.initial_in(group), dtype=dtype)

    def dtype_for(self, parameter: torch.Tensor, group: dict) -> torch.dtype:
        """Dtype on the device for a parameter of a group."""
        name = None if is_combined(group) else self.type_setting
        if self.has_no_dims and self.dtype is None:
            return number_type()
        return self.dtype or dtype_of(group, name, parameter.dtype)

    def type_of(self, parameter: torch.Tensor, group: dict) -> tuple[torch.dtype, list[int]]:
        """Dtype and sizes for a parameter of a group, as the host has it."""
        dtype = self.dtype_for(parameter, group)
        if not self.has_no_dims and self.dtype is None:
            dtype = torch.promote_types(dtype, parameter.dtype)
        return dtype, self.sizes_for(parameter.shape)


@dataclass(frozen=True)
class Setting:
    """A number that an update uses, as ``ipu_param`` and anchors show it.

    Attributes:
        name: without the parameter's.
        hyper: names of the hyper-parameters of which it is the product.
        is_complement: it is 1 minus that.
        over_loss_scale: it is divided by the loss scale.
    """

    name: str
    hyper: tuple[str, ...]
    is_complement: bool = False
    over_loss_scale: bool = False

    def of(self, parameter: str) -> str:
        """Its name outside, for one parameter."""
        return f"{self.name}___specific___{parameter}"


# Of a parameter whose velocity is combined with its gradients; no update uses it by itself.
VELOCITY_SCALING = Setting("velocityScaling", ())


@dataclass(frozen=True)
class OptimizerSpec:
    """One kind of optimizer. Its update is a native op or a formula, and is computed once for each
    parameter.

    Attributes:
        cls: of torch, or a class of the same meaning; its subclasses are of this kind unless
            they have a row of their own. Its name stands in messages and files.
        hyper: the vector of numbers, in its order.
        flags: keys of groups, or settings of the device, that are compiled in; attributes of the
            op.
        states: the tensors that it keeps, in the order in which torch's optimizer makes them.
        settings: the numbers that are shown outside.
        op: of the update: ``param``, ``grad``, the state tensors, ``step`` (which counts from 1)
            and ``hyper`` are its operands, the first of which it makes anew; then ``grad_scale``,
            by which the gradient is multiplied, and ``skip``.
        formula: in place of an op, a function on tensors, see ``formulas.py``.
        is_elementwise: whether each element of what the formula makes depends on the elements at
            its own place alone. If not, the formula may depend on the number of dimensions of the
            parameter, but not on its sizes.
        counts: torch's optimizer has the number of updates, as ``state[parameter]["step"]``. False:
            only the device counts, from the first update on.
        doc: one line for the reference.
    """

    cls: type
    hyper: tuple[Hyper, ...]
    flags: tuple[str, ...]
    states: tuple[StateTensor, ...]
    settings: tuple[Setting, ...]
    op: str | None = None
    formula: Callable | None = None
    is_elementwise: bool = True
    counts: bool = True
    doc: str = ""

    @property
    def name(self) -> str:
        """What messages and files call it."""
        return self.cls.__name__

    def hyper_values(self, group: dict) -> list[float]:
        """The hyper-parameter vector of one group."""
        return [hyper.of(group) for hyper in self.hyper]

    def compiled_in(self, group: dict) -> tuple[bool, ...]:
        """What of a group is part of the program: its flags, and which state tensors it has."""
        return (*(bool(group.get(key)) for key in self.flags),
                *(state.when is None or bool(group.get(state.when)) for state in self.states))

    def states_of(self, group: dict, parameter: Sequence[int]) -> list[StateTensor]:
        """The state tensors that a parameter of these sizes has, in a group. Where there is none,
        nothing is counted for the outside either."""
        return [state for state in self.states
                if state.is_in(group) and state.sizes_for(parameter) is not None]

    def is_before(self, values: dict[str, torch.Tensor], group: dict | None) -> bool:
        """Whether states of a parameter, and its count, are those before the first update.

        Args:
            values: by torch's keys.
            group: of the parameter; None: it has none, so all is zero in the beginning.
        """
        initial = {} if group is None else {state.key: state.initial_in(group)
                                            for state in self.states}
        return all((torch.as_tensor(value) == initial.get(key, 0.0)).all()
                   for key, value in values.items())

    def evaluate(self, fixed: dict, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the formula makes: the new parameter as ``param``, and new states by torch's keys.

        Args:
            fixed: the flags by name, and ``dtype``, in which the parameter is kept.
            tensors: ``param``, ``grad``, ``step``, and hyper-parameters and states by name.
        """
        missing = {state.key: None for state in self.states if state.key not in tensors}
        x = SimpleNamespace(**fixed, **missing, **tensors)
        if fixed.get("maximize"):
            x.grad = -x.grad
        return self.formula(x)

    def index_of(self, hyper: str) -> int:
        """The place of a hyper-parameter in the vector."""
        return [known.name for known in self.hyper].index(hyper)

    def setting_values(self, group: dict) -> list[tuple[Setting, float]]:
        """The settings of one group."""
        values = self.hyper_values(group)
        products = [math.prod(values[self.index_of(name)] for name in setting.hyper)
                    for setting in self.settings]
        scale = group.get("loss_scaling", 1.0)
        return [(setting, (1.0 - product if setting.is_complement else product)
                 / (scale if setting.over_loss_scale else 1.0))
                for setting, product in zip(self.settings, products)]
