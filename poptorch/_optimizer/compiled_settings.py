"""What one program fixes of its optimizer, and the numbers that its runs are sent.

All hyper-parameters are streamed. Some of them are constant for the checks: of ``poptorch.optim``
those that were not passed explicitly, unless ``variable_attrs`` says otherwise; of other optimizers
those that had their default when the model was compiled. The learning rate is always variable.
"""

import inspect
from array import array
from collections.abc import Callable
from operator import is_

import torch

from poptorch import _C
from poptorch._optimizer import settings
from poptorch._optimizer.checks import parameters
from poptorch._optimizer.gradient_factor import (
    LARGEST,
    LOSS_SCALE_STREAMS,
    NORM_STREAM,
    velocity_stream,
)
from poptorch._optimizer.layout import COMBINED, UpdateLayout
from poptorch._optimizer.rows import spec_of
from poptorch._optimizer.settings import SHARED, dtype_of, groups_of, is_combined
from poptorch._optimizer.spec import OptimizerSpec
from poptorch.errors import Error

_DESTROY = "Call destroy() on the executor first."


class CompiledSettings:
    """The user's optimizer, as one program, with this layout, knows it."""

    def __init__(self, layout: UpdateLayout, optimizer: torch.optim.Optimizer):
        self.layout = layout
        self._fixed: list | None = None  # what was checked and sent last, of each group
        self.use(optimizer, is_checked=True)

    def use(self, optimizer: torch.optim.Optimizer, is_checked: bool) -> None:
        """Takes another optimizer; ``is_checked`` if :meth:`check_another` accepted it."""
        self._optimizer = optimizer
        if is_checked:
            self._members = [tuple(group["params"]) for group in optimizer.param_groups]
        self._sent: list = [None] * len(self._members)
        self.invalidate()

    def invalidate(self) -> None:
        """Makes the next run look at all settings, those that are not in the groups included."""
        # What was in the groups when all of it was sent; None: look at all of it.
        self._group_lists: _C.ItemWatch | None = None
        self._group_items: _C.ItemWatch | None = None

    # -- which parameters ----------------------------------------------------------------------

    def has_other_members(self) -> bool:
        """Whether parameters or groups were added to the optimizer, or taken from it."""
        lists = self._group_lists
        if lists is not None and lists.is_same():
            return False
        groups = self._optimizer.param_groups
        return len(groups) != len(self._members) or not all(
            len(group["params"]) == len(known) and all(map(is_, group["params"], known))
            for group, known in zip(groups, self._members))

    # -- before a run --------------------------------------------------------------------------

    def is_sent(self) -> bool:
        """Whether nothing in the groups changed since the last :meth:`send`."""
        items = self._group_items
        return items is not None and items.is_same() and self._group_lists.is_same()

    def send(self, call, pull_states: Callable[[], None]) -> None:
        """Sends a call the numbers that changed since the last run; a ValueError if a setting that
        is compiled in changed. ``pull_states`` reads the states, before their form changes."""
        has_same_lists = self._group_lists is not None and self._group_lists.is_same()
        self._send(call, pull_states)
        if not has_same_lists:
            self._watch_groups()
        else:
            self._watch_items()

    def _watch_groups(self) -> None:
        own, groups = vars(self._optimizer), self._optimizer.param_groups
        self.invalidate()
        if own.get("param_groups") is groups and type(groups) is list and all(
                type(group) is dict and type(group["params"]) is list for group in groups):
            places = [(own, "param_groups"), *((group, "params") for group in groups)]
            lists = [groups, *(group["params"] for group in groups)]
            self._group_lists = _C.ItemWatch(lists, places)
            self._watch_items()

    def _watch_items(self) -> None:
        groups = self._optimizer.param_groups
        if not all(map(_has_fixed_values, groups)):
            self._group_items = None
        elif self._group_items is None:
            self._group_items = _C.ItemWatch(groups)
        else:
            self._group_items.note()

    def _send(self, call, pull_states: Callable[[], None]) -> None:
        spec, groups = self.layout.spec, groups_of(self._optimizer)
        fixed = [(spec.compiled_in(group), [group[name] for name in settings.SETTINGS],
                  [plain(group[name]) for name in compiled.constants])
                 for group, compiled in zip(groups, self.layout.groups)]
        if fixed != self._fixed:
            check_settings(self._optimizer, self.layout)
            self._send_settings(call, groups, pull_states)
            self._fixed = fixed
        for number, (group, compiled) in enumerate(zip(groups, self.layout.groups)):
            values = spec.hyper_values(group)
            if self._sent[number:number + 1] != [values]:
                call.bind(compiled.stream, _numbers(values))
                self._sent[number:number + 1] = [values]

    def _send_settings(self, call, groups: list[dict], pull_states: Callable[[], None]) -> None:
        for group, compiled in zip(groups, self.layout.groups):
            if is_combined(group):
                velocity = float(group["velocity_scaling"])
                if velocity != compiled.velocity_scaling:
                    pull_states()
                    compiled.velocity_scaling = velocity
                call.bind(velocity_stream(compiled.stream), _numbers([velocity])[0])
        values = settings.shared(self._optimizer, groups)
        _check_loss_scale(values["loss_scaling"], self.layout.loss)
        for stream in LOSS_SCALE_STREAMS:
            call.bind(stream, _numbers([values["loss_scaling"]])[0])
        call.bind(NORM_STREAM, _numbers([values["max_grad_norm"]])[0])

    # -- another optimizer ---------------------------------------------------------------------

    def check_another(self, optimizer: torch.optim.Optimizer, module: torch.nn.Module) -> None:
        """Raises a ValueError if the program cannot train ``module`` with another optimizer."""
        check_compatible(optimizer, self.layout)
        for number, (group, known) in enumerate(zip(optimizer.param_groups, self._members)):
            new = {id(p) for p in group["params"]} - {id(p) for p in known}
            more = [name for name, p in parameters(module)
                    if id(p) in new and p.requires_grad] if new else []
            if more:
                raise ValueError(f"[setOptimizer] parameter group {number} without {more[0]} is "
                                 f"already compiled, the new optimizer has it there. Make the "
                                 f"optimizer of the same parameters, or call destroy() on the "
                                 f"executor first.")


def stream_values(layout: UpdateLayout, optimizer: torch.optim.Optimizer) -> dict[str, list]:
    """The numbers of each stream that :meth:`CompiledSettings.send` binds."""
    groups = groups_of(optimizer)
    found = {compiled.stream: layout.spec.hyper_values(group)
             for group, compiled in zip(groups, layout.groups)}
    found |= {velocity_stream(compiled.stream): [float(group["velocity_scaling"])]
              for group, compiled in zip(groups, layout.groups) if is_combined(group)}
    values = settings.shared(optimizer, groups)
    found |= dict.fromkeys(LOSS_SCALE_STREAMS, [values["loss_scaling"]])
    return {**found, NORM_STREAM: [values["max_grad_norm"]]}


def check_compatible(optimizer: torch.optim.Optimizer, layout: UpdateLayout) -> None:
    """Raises a ValueError when an optimizer is not one that a program can train with."""
    spec, groups = spec_of(optimizer), optimizer.param_groups
    if spec is not layout.spec:
        raise ValueError(f"[setOptimizer] {layout.spec.name} is already compiled, got {spec.name}. "
                         f"{_DESTROY}")
    if len(groups) != len(layout.groups):
        raise ValueError(f"[setOptimizer] a number of {len(layout.groups)} parameter groups is "
                         f"already compiled, got {len(groups)}. {_DESTROY}")
    check_settings(optimizer, layout)
    for number, (group, compiled) in enumerate(zip(groups, layout.groups)):
        held = {id(parameter) for parameter in group["params"]}
        missing = [name for name, parameter in compiled.params if id(parameter) not in held]
        if missing:
            raise ValueError(f"[setOptimizer] {missing[0]} in parameter group {number} is already "
                             f"compiled, the new optimizer does not have it there. Make the "
                             f"optimizer of the same parameters, or call destroy() on the "
                             f"executor first.")


def check_settings(optimizer: torch.optim.Optimizer, layout: UpdateLayout) -> None:
    """Raises a ValueError when a setting that is compiled in, or constant, changed."""
    groups, spec = groups_of(optimizer), layout.spec
    for number, (group, compiled) in enumerate(zip(groups, layout.groups)):
        was, values = compiled.compiled_in, spec.compiled_in(group)
        names = *spec.flags, *spec.constants
        for name, old, new in zip(names, was, values):
            if old != new:
                raise _already_compiled(f"{name}={old}", number, new)
        for state, old, new in zip(spec.states, was[len(names):], values[len(names):]):
            if old != new:
                what = f"an update {'with' if old else 'without'} {state.when}"
                raise _already_compiled(what, number, f"{state.when}={group[state.when]}")
        types = types_of(spec, group, [p for _, p in compiled.params])
        for (name, _, old), (_, _, new) in zip(compiled.types, types):
            if old != new:
                raise _already_compiled(f"{name}={old}", number, new)
        _check_constants(compiled.constants, group, f" of parameter group {number}")
    _check_constants(layout.constants, settings.shared(optimizer, groups), "")


def _already_compiled(what: str, number: int, got) -> ValueError:
    return ValueError(f"[setOptimizer] {what} of parameter group {number} is already compiled, "
                      f"got {got}. {_DESTROY}")


def _check_constants(compiled: dict, present: dict, where: str) -> None:
    for name, old in compiled.items():
        if plain(present[name]) != old:
            raise ValueError(
                f"[setOptimizer] {name}={old}{where} is a constant of the compiled model, got "
                f"{present[name]}. Before the first call, pass it to the optimizer of "
                f"poptorch.optim or call optimizer.variable_attrs.markAsVariable({name!r}), or "
                f"give one of torch.optim another value than its default; or call destroy() on the "
                f"executor now.")


def _check_loss_scale(scale: float, loss: str) -> None:
    if loss and scale > LARGEST[loss]:
        raise Error(f"[loss_scaling] the loss scale is {scale:g}, but the largest {loss} number is "
                    f"{LARGEST[loss]:g} and the loss has this type: all gradients would be "
                    f"infinite. Choose a smaller loss scale, or compute the loss in float32.")


# -- what is compiled in --------------------------------------------------------------------------


def fix(layout: UpdateLayout, optimizer: torch.optim.Optimizer) -> None:
    """Notes in a layout which settings of an optimizer are compiled in, and which are constant."""
    spec, groups = layout.spec, groups_of(optimizer)
    shared = settings.shared(optimizer, groups)
    layout.constants = _constants(optimizer, spec, shared, SHARED)
    for group, compiled in zip(groups, layout.groups):
        compiled.types = types_of(spec, group, [p for _, p in compiled.params])
        names = [hyper.group_key for hyper in spec.hyper]
        if group.get("use_combined_accum"):
            names.append("velocity_scaling")
        compiled.constants = _constants(optimizer, spec, group, names)


def _constants(optimizer: torch.optim.Optimizer, spec: OptimizerSpec, values: dict, names) -> dict:
    return {name: plain(values[name]) for name in names
            if is_constant(optimizer, spec, name, values[name])}


def types_of(spec: OptimizerSpec, group: dict, params: list) -> list[tuple]:
    """What a group's settings say of types: ``(setting, dtype of a parameter, dtype)``."""
    names = dict.fromkeys(state.type_setting for state in spec.states
                          if state.is_in(group) and state.type_setting)
    names = ["accum_type", *names] if not is_combined(group) else []
    dtypes = dict.fromkeys(p.dtype for p in params)
    return [(COMBINED, "", str(is_combined(group))),
            *((name, str(dtype), str(dtype_of(group, name, dtype)))
              for name in names for dtype in dtypes)]


def is_constant(optimizer: torch.optim.Optimizer, spec: OptimizerSpec, name: str, value) -> bool:
    """Whether the group key or setting ``name`` of an optimizer, with that value, is constant."""
    if name == "lr":
        return False
    marked = getattr(optimizer, "variable_attrs", None)
    if marked is not None and name in marked:
        return marked.isConstant(name)
    if name in SHARED:  # torch.optim does not have it
        return True
    parameter = inspect.signature(spec.cls.__init__).parameters.get(name)
    return parameter is not None and parameter.default is not parameter.empty \
        and plain(parameter.default) == plain(value)


def plain(value):
    """A value that can be compared, and written to a file: numbers as float."""
    if isinstance(value, (tuple, list)):
        return tuple(map(plain, value))
    is_number = isinstance(value, (int, float, torch.Tensor)) and not isinstance(value, bool)
    return float(value) if is_number else value


def _numbers(values: list[float]) -> torch.Tensor:
    # In half the time of torch.tensor(values).
    return torch.frombuffer(array("d", values), dtype=torch.float64)


# Values that cannot change as long as they are the same objects.
_FIXED = frozenset({bool, int, float, str, type(None)})


def _has_fixed_values(group: dict) -> bool:
    """Whether nothing within a group's values can change, as a tensor for the learning rate can;
    apart from its parameters."""
    params = group["params"]
    return all(type(value) is tuple and _FIXED.issuperset(map(type, value))
               for value in group.values() if type(value) not in _FIXED and value is not params)
