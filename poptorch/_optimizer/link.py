"""The user's optimizer and the compiled update: what may change, and what each call is given."""

import math
import weakref
from array import array
from collections.abc import Iterable
from operator import is_

import torch

from poptorch import _C
from poptorch._base.logging import logger
from poptorch._base.types import ir_dtype
from poptorch._optimizer import compiled_settings as compiled_in
from poptorch._optimizer import constants, device_settings, members, shared_state, update
from poptorch._optimizer.attributes import AttributeWatch, check_differentiable
from poptorch._optimizer.combined import Velocities
from poptorch._optimizer.device_settings import dtype_of, groups_of
from poptorch._optimizer.factor import (
    LOSS_SCALE_STREAMS,
    NORM_STREAM,
    GradientFactor,
    velocity_stream,
)
from poptorch._optimizer.layout import GroupLayout, UpdateLayout
from poptorch._optimizer.rows import spec_of
from poptorch._optimizer.spec import OptimizerSpec
from poptorch._optimizer.state import OptimizerState
from poptorch.errors import Error

_HALVES = (torch.float16, torch.bfloat16)


def _already_compiled(what: str, number: int, got) -> ValueError:
    return ValueError(f"[setOptimizer] {what} of parameter group {number} is already compiled, "
                      f"got {got}. Call destroy() on the executor first.")


class OptimizerLink:
    """Connects an executor with the torch optimizer that the user holds.

    Args:
        module: the user's module, whose parameters are updated.
        optimizer: the user's; None: SGD with a learning rate of 0.01.
        relax: log attributes that the device does not use at level DEBUG only.

    Attributes:
        optimizer: the one in use.
        state: its state, on the device or waiting for it.

    Raises:
        poptorch.Error: The device has no update of its kind, or it holds no parameter of the
            module.
    """

    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer | None,
                 relax: bool = False):
        self._module = module
        if optimizer is None:
            trained = [p for p in module.parameters() if p.requires_grad]
            optimizer = torch.optim.SGD([{"params": trained or list(module.parameters())}], lr=0.01)
        self.state = OptimizerState()
        # An executor that was forgotten without destroy() leaves the state to its optimizer.
        weakref.finalize(self, self.state.let_go).atexit = False
        self._watch = AttributeWatch(relax)
        self._layout: UpdateLayout | None = None
        self._members: list[tuple] = []  # of the groups, when they were compiled
        self._sent: list = []
        # What was in the groups when all of it was compiled in or sent; None: look at all of it.
        self._group_lists: _C.ItemWatch | None = None
        self._group_items: _C.ItemWatch | None = None
        self._has_told_of_others = False
        self._has_settings = False  # the program has those that are no part of the groups
        self._fixed: list | None = None  # what was checked and sent last, of each group
        self._use(optimizer, "trainingModel")

    def _use(self, optimizer: torch.optim.Optimizer, where: str) -> None:
        spec_of(optimizer)  # an error for what is no optimizer, or none that the device has
        device_settings.check(optimizer)
        device_settings.shared(optimizer, groups_of(optimizer))
        is_known = where == "setOptimizer" and optimizer is self.optimizer
        if not is_known or self._has_other_members():
            self._check_members(optimizer, where)
        shared_state.watch(optimizer)
        self._watch.look(optimizer)
        self.optimizer = optimizer
        self.state.use(optimizer)

    def _check_members(self, optimizer, where: str) -> None:
        others, held = members.check(optimizer, self._module, where)
        if others and not self._has_told_of_others:
            self._has_told_of_others = True
            logger.warning("%d of the %d parameters of the optimizer %s are none of the wrapped "
                           "%s: this executor does not train them.", others, held,
                           type(optimizer).__name__, type(self._module).__name__)

    def check_settings(self) -> None:
        """Raises an Error when a setting has a value that is not implemented."""
        device_settings.check(self.optimizer)
        check_differentiable(self.optimizer)

    def _groups(self, optimizer=None) -> list[dict]:
        return groups_of(optimizer or self.optimizer)

    def set(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes another optimizer.

        Raises:
            ValueError: It would change what is compiled in.
        """
        spec = spec_of(optimizer)
        is_another = optimizer is not self.optimizer
        if self._layout is not None:
            self._check_spec(spec, self._layout)
            if is_another:
                self._check_groups(spec, optimizer, self._layout)
            elif not self._has_other_members():  # those are for the next call
                self._check_compiled_in(spec, optimizer, self._layout)
        self._use(optimizer, "setOptimizer")
        self._has_settings = False
        if is_another and self._layout is not None:
            self._members = [tuple(group["params"]) for group in optimizer.param_groups]
            self._sent, self._group_lists = [None] * len(self._members), None

    def numbers(self) -> list[list[float]]:
        """The hyper-parameters of each group, as the device takes them."""
        spec = spec_of(self.optimizer)
        return [spec.hyper_values(group) for group in self._groups()]

    # -- what translate reads ------------------------------------------------------------------

    @property
    def has_loss_scale(self) -> bool:
        """Whether a program is to have a loss scale: one that is not 1, or may change."""
        return self._is_streamed("loss_scaling", 1.0)

    def _is_streamed(self, name: str, neutral: float) -> bool:
        value = device_settings.shared(self.optimizer, self._groups())[name]
        return value != neutral or not constants.is_constant(
            self.optimizer, spec_of(self.optimizer), name, value)

    def sum_dtypes(self, gradients: dict[str, tuple]) -> dict[str, torch.dtype]:
        """The types in which gradients are added up, by name.

        Args:
            gradients: the parameter, and the type of its gradient, by name.
        """
        group_of = {id(p): group for group in self._groups() for p in group["params"]}
        found = {}
        for name, (parameter, dtype) in gradients.items():
            group = group_of.get(id(parameter))
            is_own = group is None or device_settings.is_combined(group)
            found[name] = dtype if is_own else dtype_of(group, "accum_type", dtype)
        return found

    def has_half_sums(self) -> bool:
        """Whether gradients of the module's parameters, of their types, are added up in half
        precision."""
        trained = {name: (p, p.dtype) for name, p in members.parameters(self._module)
                   if p.requires_grad}
        return any(dtype in _HALVES for dtype in self.sum_dtypes(trained).values())

    def adds_to_velocities(self, spec, params: dict[str, torch.Tensor]) -> bool:
        """Whether gradients of micro-batches are added to states, see ``combined.py``.

        Args:
            spec: the loops around the graph.
            params: those that have a gradient, by name.
        """
        limits = (spec.clip_norm, spec.clip_value)
        if any(limit is not None for limit in limits) or spec.automatic_loss_scaling \
                or self._is_streamed("max_grad_norm", math.inf):
            return False
        return any(self._combined_groups(params))

    def _combined_groups(self, params: dict[str, torch.Tensor]):
        """Number, group, and the names of its parameters, where gradients are added to states."""
        kind, names = spec_of(self.optimizer), {id(p): name for name, p in params.items()}
        for number, group in enumerate(self._groups()):
            held = {names[id(p)]: p for p in group["params"] if id(p) in names}
            dampening = group.get("dampening")
            is_fixed = dampening == 0 and constants.is_constant(self.optimizer, kind, "dampening",
                                                                dampening)
            if held and device_settings.is_combined(group) and is_fixed:
                yield number, group, held

    def velocities(self, e, spec, params: dict[str, torch.Tensor], sizes: dict[str, list[int]],
                   inverse) -> Velocities:
        """The states that gradients are added to.

        Args:
            e: emitter of the graph that has the update.
            spec: the loops around the graph.
            params: those that have a gradient, by name.
            sizes: of their values on the device, by name.
            inverse: the value that undoes the loss scale; None without one.
        """
        found, numbers = Velocities(e, spec, inverse), len(spec_of(self.optimizer).hyper)
        for number, group, held in self._combined_groups(params):
            types = {name: (ir_dtype(p.dtype), sizes[name]) for name, p in held.items()}
            found.add_group(f"optimizer.group{number}", group, types, numbers)
        return found

    def factor(self, e, spec, program, gradients: dict, scaling) -> tuple:
        """The gradients that the update sees, and by what it multiplies them.

        Args:
            e: emitter of the graph that has the update.
            spec: the loops around the graph.
            program: which is translated.
            gradients: the reduced gradients, by name.
            scaling: the program's ``LossScale``; None without one.
        """
        is_wide = any(value.dtype == "f64" for value in gradients.values())
        wide = torch.float64 if is_wide else torch.float32
        factor = GradientFactor(scaling, wide)
        held = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        trained = {name: value for name, value in gradients.items()
                   if id(program.states[name]) in held}
        limits = []
        if self._is_streamed("max_grad_norm", math.inf):
            limits.append(e.named("stream_in", NORM_STREAM,
                                  {"stream": NORM_STREAM, "repeat": True}, "f64", []))
        if spec.clip_norm is not None:
            limits.append(e.constant(spec.clip_norm, wide))
        if limits:
            factor.clip_norm(e, spec, trained, limits)
        if spec.clip_value is not None:
            gradients = {**gradients, **factor.clip_values(e, trained, spec.clip_value)}
        return gradients, factor

    def emit_update(self, e, program, gradients: dict, factor: GradientFactor) -> UpdateLayout:
        """Appends the update to a program, see :func:`update.emit_update`."""
        self.check_settings()
        self._check_members(self.optimizer, "trainingModel")  # either may have changed since
        spec, groups = spec_of(self.optimizer), self._groups()
        layout = update.emit_update(e, program, gradients, spec, groups,
                                    self.state.counter(spec), factor)
        values = device_settings.shared(self.optimizer, groups)
        layout.constants = constants.of_all(self.optimizer, spec, values)
        layout.streamed = [] if factor.loss_scale is None else ["loss_scaling"]
        if self._is_streamed("max_grad_norm", math.inf):
            layout.streamed.append("max_grad_norm")
        layout.loss, layout.states = factor.loss, factor.states
        for group, compiled in zip(groups, layout.groups):
            compiled.types = compiled_in.types_of(spec, group, [p for _, p in compiled.params])
            compiled.constants = constants.of_group(self.optimizer, spec, group)
        return layout

    def forget(self) -> None:
        """Takes note that nothing is compiled any more: any optimizer may come next."""
        self._layout, self._members, self._sent, self._group_lists = None, [], [], None
        self._fixed = None
        self.state.release()

    def check_compatible(self, layout: UpdateLayout) -> None:
        """Raises a ValueError when the present optimizer is not one that ``layout`` is for."""
        self.check_settings()
        spec = spec_of(self.optimizer)
        self._members = [tuple(group["params"]) for group in self.optimizer.param_groups]
        self._check_spec(spec, layout)
        self._check_groups(spec, self.optimizer, layout)

    def _check_spec(self, spec: OptimizerSpec, layout: UpdateLayout) -> None:
        if spec is not layout.spec:
            raise ValueError(f"[setOptimizer] {layout.spec.name} is already compiled, got "
                             f"{spec.name}. Call destroy() on the executor first.")

    def _check_groups(self, spec: OptimizerSpec, optimizer, layout) -> None:
        groups = optimizer.param_groups
        if len(groups) != len(layout.groups):
            raise ValueError(f"[setOptimizer] a number of {len(layout.groups)} parameter groups is "
                             f"already compiled, got {len(groups)}. Call destroy() on the "
                             f"executor first.")
        self._check_compiled_in(spec, optimizer, layout)
        for number, (group, compiled) in enumerate(zip(groups, layout.groups)):
            self._check_parameters(number, group["params"], compiled)

    def _check_parameters(self, number: int, given: Iterable, compiled: GroupLayout) -> None:
        found = {id(parameter) for parameter in given}
        missing = [name for name, parameter in compiled.params if id(parameter) not in found]
        if missing:
            raise ValueError(f"[setOptimizer] {missing[0]} in parameter group {number} is already "
                             f"compiled, the new optimizer does not have it there. Make the "
                             f"optimizer of the same parameters, or call destroy() on the "
                             f"executor first.")
        new = found - {id(parameter) for parameter in self._members[number]}
        more = [name for name, parameter in members.parameters(self._module)
                if id(parameter) in new and parameter.requires_grad] if new else []
        if more:
            raise ValueError(f"[setOptimizer] parameter group {number} without {more[0]} is "
                             f"already compiled, the new optimizer has it there. Make the "
                             f"optimizer of the same parameters, or call destroy() on the "
                             f"executor first.")

    def _check_compiled_in(self, spec: OptimizerSpec, optimizer, layout) -> None:
        groups, flags = self._groups(optimizer), len(spec.flags)
        for number, (group, compiled) in enumerate(zip(groups, layout.groups)):
            was, values = compiled.compiled_in, spec.compiled_in(group)
            for name, old, new in zip(spec.flags, was, values):
                if old != new:
                    raise _already_compiled(f"{name}={old}", number, new)
            for state, old, new in zip(spec.states, was[flags:], values[flags:]):
                if old != new:
                    what = f"an update {'with' if old else 'without'} {state.when}"
                    raise _already_compiled(what, number, f"{state.when}={group[state.when]}")
            types = compiled_in.types_of(spec, group, [p for _, p in compiled.params])
            for (name, _, old), (_, _, new) in zip(compiled.types, types):
                if old != new:
                    raise _already_compiled(f"{name}={old}", number, new)
            where = f" of parameter group {number}"
            compiled_in.check_constants(compiled.constants, group, where)
        values = device_settings.shared(optimizer, groups)
        compiled_in.check_constants(layout.constants, values, "")

    def compiled(self, program, executable, can_run: bool) -> None:
        """Takes note of what was compiled.

        Args:
            program: what translate made.
            executable: the compiled program.
            can_run: whether the program is to run here.
        """
        self._layout = program.optimizer
        self._members = [tuple(group["params"]) for group in self.optimizer.param_groups]
        self._sent, self._group_lists = [None] * len(self._layout.groups), None
        self._fixed = None
        self.state.bind(program, executable, can_run)

    def _has_other_members(self) -> bool:
        if self._has_same_lists():
            return False
        groups = self.optimizer.param_groups
        return len(groups) != len(self._members) or not all(
            len(group["params"]) == len(known) and all(map(is_, group["params"], known))
            for group, known in zip(groups, self._members))

    def has_outgrown(self) -> bool:
        """Whether the program has to be compiled anew: parameters or groups were added to the
        optimizer or taken from it, or parameters that are counted together differ in their
        counts."""
        if self._layout is None:
            return False
        return self._has_other_members() or self.state.uneven() is not None

    def check_outgrown(self, where: str) -> None:
        """Raises an Error where :meth:`has_outgrown`, for what cannot compile anew."""
        if not self.has_outgrown():
            return
        why = "parameters or groups were added to the optimizer, or taken from it, after the " \
              "model was compiled"
        if not self._has_other_members():
            why = "{} is {:g} and {} is {:g}, but the program counts both together: steps on the " \
                  "CPU or a state that was loaded made them differ".format(*self.state.uneven())
        raise Error(f"[{where}] {why}. Call compileAndExport() with the arguments of a call, which "
                    f"compiles the model again and writes it, or call the model first.")

    def refresh(self, call) -> None:
        """Before a call: sends the hyper-parameters of groups where they changed since the last
        one, and the state that the host has."""
        if not self._has_settings or not self._has_same_lists():
            self._send(call)
            self._look_at_groups()
            self._has_settings = True
        elif self._group_items is None or not self._group_items.is_same():
            self._send(call)
            self._look_at_items()
        self.state.before_run()
        # What torch's schedulers look at: whether there was an update before their step.
        self.optimizer._opt_called = True

    def _has_same_lists(self) -> bool:
        """Whether the groups are the same objects and hold the same parameters."""
        return self._group_lists is not None and self._group_lists.is_same()

    def _look_at_groups(self) -> None:
        own, groups = vars(self.optimizer), self.optimizer.param_groups
        self._group_lists = self._group_items = None
        if own.get("param_groups") is groups and type(groups) is list and all(
                type(group) is dict and type(group["params"]) is list for group in groups):
            places = [(own, "param_groups"), *((group, "params") for group in groups)]
            lists = [groups, *(group["params"] for group in groups)]
            self._group_lists = _C.ItemWatch(lists, places)
            self._look_at_items()

    def _look_at_items(self) -> None:
        groups = self.optimizer.param_groups
        if not all(map(_has_fixed_values, groups)):
            self._group_items = None
        elif self._group_items is None:
            self._group_items = _C.ItemWatch(groups)
        else:
            self._group_items.note()

    def _send(self, call) -> None:
        spec, groups = self._layout.spec, self._groups()
        fixed = [compiled_in.fixed_of(spec, group, compiled)
                 for group, compiled in zip(groups, self._layout.groups)]
        if fixed != self._fixed:
            self._check_compiled_in(spec, self.optimizer, self._layout)
            self._send_settings(call, groups)
            self._fixed = fixed
        for number, (group, compiled) in enumerate(zip(groups, self._layout.groups)):
            values = spec.hyper_values(group)
            if self._sent[number:number + 1] != [values]:
                call.bind(compiled.stream, _numbers(values))
                self._sent[number:number + 1] = [values]

    def _send_settings(self, call, groups: list[dict]) -> None:
        for group, compiled in zip(groups, self._layout.groups):
            if device_settings.is_combined(group):
                velocity = float(group["velocity_scaling"])
                if velocity != compiled.velocity_scaling:
                    self.state.bring()
                    compiled.velocity_scaling = velocity
                call.bind(velocity_stream(compiled.stream), _number(velocity))
        values = device_settings.shared(self.optimizer, groups)
        compiled_in.check_loss_scale(values["loss_scaling"], self._layout.loss)
        for stream in LOSS_SCALE_STREAMS:
            call.bind(stream, _number(values["loss_scaling"]))
        call.bind(NORM_STREAM, _number(values["max_grad_norm"]))


def _numbers(values: list[float]) -> torch.Tensor:
    # In half the time of torch.tensor(values).
    return torch.frombuffer(array("d", values), dtype=torch.float64)


def _number(value: float) -> torch.Tensor:
    return _numbers([value])[0]


# Values of which nothing can change as long as they are the same objects.
_FIXED = frozenset({bool, int, float, str, type(None)})


def _has_fixed_values(group: dict) -> bool:
    """Whether a group holds nothing that can change within, as a tensor for the learning rate
    does; apart from its parameters."""
    params = group["params"]
    return all(type(value) is tuple and _FIXED.issuperset(map(type, value))
               for value in group.values() if type(value) not in _FIXED and value is not params)
