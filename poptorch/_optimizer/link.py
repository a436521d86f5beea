"""What an executor has to do with the user's optimizer.

States need no copy when another program of the executor becomes current: ``LiveStates`` knows which
program has the newest ones, and the next ``before_run`` moves them.
"""

import copy
import math
import weakref
from typing import NamedTuple

import torch

from poptorch._base import interrupts
from poptorch._base.torch_private.modes_off import computes_values
from poptorch._base.types import real_dtype
from poptorch._optimizer import checks, update
from poptorch._optimizer import settings as device_settings
from poptorch._optimizer.compiled_settings import (
    CompiledSettings,
    check_compatible,
    check_settings,
    fix,
    is_constant,
    stream_values,
)
from poptorch._optimizer.device_states import DeviceStates
from poptorch._optimizer.gradient_factor import NORM_STREAM, GradientFactor, stream
from poptorch._optimizer.layout import UpdateLayout
from poptorch._optimizer.live_states import LiveStates, live
from poptorch._optimizer.rows import check_has_own_step, spec_of
from poptorch._optimizer.settings import dtype_of, groups_of, is_combined
from poptorch._optimizer.state_names import use_saved_form
from poptorch._optimizer.update import Velocities

_HALVES = (torch.float16, torch.bfloat16)


class _Program(NamedTuple):
    settings: CompiledSettings
    states: DeviceStates


def default_optimizer(module: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a model for which none was given."""
    trained = [p for p in module.parameters() if p.requires_grad]
    return torch.optim.SGD([{"params": trained or list(module.parameters())}], lr=0.01)


class OptimizerLink:
    """Connects an executor with the torch optimizer that the user holds; None: SGD with a learning
    rate of 0.01.

    Raises an Error if the device has no update of its kind, or it holds no parameter of the module.
    """

    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer | None,
                 relax: bool = False):
        self._module = module
        if optimizer is None:
            optimizer = default_optimizer(module)
        self._states = _ExecutorStates()
        # An executor that was forgotten without destroy() leaves the state to its optimizer.
        weakref.finalize(self, self._states.let_go).atexit = False
        self._watch = checks.AttributeWatch(relax)
        self._programs: list[_Program] = []
        self._current: _Program | None = None
        self._member_check = checks.MemberCheck(module)
        self._use(optimizer, "trainingModel")

    def _use(self, optimizer: torch.optim.Optimizer, where: str) -> None:
        spec_of(optimizer)  # an error for parameters without an update on the device
        device_settings.check(optimizer)
        device_settings.shared(optimizer, groups_of(optimizer))
        is_known = where == "setOptimizer" and optimizer is self.optimizer
        if not is_known or self._current is None or self._current.settings.has_other_members():
            self._member_check(optimizer, where)
        use_saved_form(optimizer)
        self._watch.look(optimizer)
        self.optimizer = optimizer
        self._states.use(optimizer)

    def set(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes another optimizer, or the same one with other settings. Raises a ValueError if it
        would change what is compiled in."""
        check_has_own_step(optimizer, "setOptimizer", expected=False)
        current = self._current and self._current.settings
        is_another = optimizer is not self.optimizer
        if current is not None:
            if is_another:
                current.check_another(optimizer, self._module)
            elif not current.has_other_members():  # those are for the next call
                check_settings(optimizer, current.layout)
        self._use(optimizer, "setOptimizer")
        for program in self._programs:
            if is_another:
                program.settings.use(optimizer, is_checked=program is self._current)
            program.settings.invalidate()

    def numbers(self) -> list[list[float]]:
        """The hyper-parameters of each group, as the device takes them."""
        spec = spec_of(self.optimizer)
        return [spec.hyper_values(group) for group in groups_of(self.optimizer)]

    # -- the programs of the executor ----------------------------------------------------------

    def compiled(self, program, executable, can_run: bool) -> None:
        """Adds a program, and makes it the current one. ``can_run``: it is to run here."""
        states = DeviceStates(program, executable)
        self._states.add(states, can_run)
        self._programs.append(_Program(CompiledSettings(program.optimizer, self.optimizer), states))
        self.select(program)

    def select(self, program) -> None:
        """Makes a program that was compiled before the current one. Its states follow with the next
        :meth:`before_run`."""
        self._current = self._of(program)

    def _of(self, program) -> _Program:
        return next(known for known in self._programs
                    if known.settings.layout is program.optimizer)

    def forget(self, program=None) -> None:
        """Reads the states of a program that is given up; None: of all, so that any optimizer may
        come next."""
        for gone in list(self._programs) if program is None else [self._of(program)]:
            self._programs.remove(gone)
            if gone is self._current:
                self._current = None
            self._states.release(gone.states)

    @property
    def is_compiled(self) -> bool:
        return self._current is not None

    def recompile_reason(self, program=None) -> str | None:
        """Why a program (None: the current one) does not fit the optimizer any more; None: it does.
        """
        known = self._current if program is None else self._of(program)
        if known is None:
            return None
        settings, states = known
        if settings.has_other_members():
            return checks.MEMBERS_CHANGED
        if known is not self._current:
            try:
                check_settings(self.optimizer, settings.layout)
            except ValueError as error:
                return str(error)
        if self._states.is_running(states):
            return None
        uneven = self._states.find_store().uneven(states)
        return uneven and "{} is {:g} and {} is {:g}, but the program counts both together: " \
            "steps on the CPU or a loaded state made them differ".format(*uneven)

    # -- runs ----------------------------------------------------------------------------------

    @property
    def has_loaded(self) -> bool:
        """Whether a ``load_state_dict`` came after the last run."""
        store = self._states.store
        return store.is_loaded or self.optimizer.state is not store

    def before_run(self, call) -> bool:
        """Sends the current program the settings that changed, and the states that the host has;
        returns True: it suits the update.

        Raises an Error if a state is not of the shape that the program has, a ValueError if a
        setting changed that is compiled in.
        """
        settings, states = self._current
        if not settings.is_sent():
            settings.send(call, lambda: self._states.pull(states))
        self._states.give(states)
        # What torch's schedulers look at: whether there was an update before their step.
        self.optimizer._opt_called = True
        return True

    def after_run(self) -> None:
        """Notes that the program has the newest states, as another thread may have read them
        during the run."""
        current = self._current
        if current is not None and self._states.store.running is not current.states:
            self._states.store.ran(current.states)

    def ended(self, call) -> None:
        """The device made the update."""

    # -- files ---------------------------------------------------------------------------------

    def has_begun(self) -> bool:
        """Whether the optimizer has a state."""
        return live(self.optimizer).has_begun()

    def before_save(self) -> None:
        """Gives the current program the newest states, for a file. Raises an Error if the program
        does not fit the optimizer any more."""
        checks.check_can_save(self.recompile_reason())
        self._states.give(self._current.states)

    def fixed_update(self) -> tuple[str | None, dict, dict]:
        """Why a program needs Python: nothing; the numbers by stream; no states of the host."""
        return None, stream_values(self._current.settings.layout, self.optimizer), {}

    def exported(self) -> torch.optim.Optimizer:
        """A copy of the optimizer with the states that the current program does not have."""
        copied = copy.copy(self.optimizer)
        copied.state = self._states.store.without(self._current.states)
        return copied

    def check_compatible(self, layout: UpdateLayout) -> None:
        """Raises a ValueError when ``layout``, of a file, is not for the present optimizer."""
        self.check_values()
        check_compatible(self.optimizer, layout)

    def loaded_with_program(self) -> None:
        """Notes that the current program came from a file, with states."""
        self._states.store.ran(self._current.states)

    # -- what translate reads ------------------------------------------------------------------

    @property
    def has_loss_scale(self) -> bool:
        """Whether a program is to have a loss scale: one that is not 1, or may change."""
        return self._is_streamed("loss_scaling", 1.0)

    def _is_streamed(self, name: str, neutral: float) -> bool:
        value = device_settings.shared(self.optimizer, groups_of(self.optimizer))[name]
        return value != neutral or not is_constant(
            self.optimizer, spec_of(self.optimizer), name, value)

    def sum_dtypes(self, gradients: dict[str, tuple]) -> dict[str, torch.dtype]:
        """The types in which gradients are added up, by name, from each parameter and the type of
        its gradient."""
        group_of = {id(p): group for group in groups_of(self.optimizer) for p in group["params"]}
        found = {}
        for name, (parameter, dtype) in gradients.items():
            group = group_of.get(id(parameter))
            is_own = group is None or is_combined(group)
            found[name] = dtype if is_own else dtype_of(group, "accum_type", dtype)
        return found

    def has_half_sums(self) -> bool:
        """Whether gradients of the module's parameters, of their types, are added up in half
        precision."""
        trained = {name: (p, p.dtype) for name, p in checks.parameters(self._module)
                   if p.requires_grad}
        return any(dtype in _HALVES for dtype in self.sum_dtypes(trained).values())

    def adds_to_velocities(self, spec, params: dict[str, torch.Tensor]) -> bool:
        """Whether gradients of micro-batches are added to states, see ``update.py``."""
        limits = (spec.clip_norm, spec.clip_value)
        if any(limit is not None for limit in limits) or spec.automatic_loss_scaling \
                or self._is_streamed("max_grad_norm", math.inf):
            return False
        return any(self._combined_groups(params))

    def _combined_groups(self, params: dict[str, torch.Tensor]):
        """Number, group, and the names of its parameters, where gradients are added to states."""
        kind, names = spec_of(self.optimizer), {id(p): name for name, p in params.items()}
        for number, group in enumerate(groups_of(self.optimizer)):
            held = {names[id(p)]: p for p in group["params"] if id(p) in names}
            dampening = group.get("dampening")
            is_fixed = dampening == 0 and is_constant(self.optimizer, kind, "dampening", dampening)
            if held and is_combined(group) and is_fixed:
                yield number, group, held

    def velocities(self, e, spec, params: dict[str, torch.Tensor], sizes: dict[str, list[int]],
                   inverse) -> Velocities:
        """The states that gradients are added to. ``sizes`` are those on the device; ``inverse``
        undoes the loss scale."""
        found, numbers = Velocities(e, spec, inverse), len(spec_of(self.optimizer).hyper)
        for number, group, held in self._combined_groups(params):
            types = {name: (real_dtype(p.dtype), sizes[name]) for name, p in held.items()}
            found.add_group(f"optimizer.group{number}", group, types, numbers)
        return found

    def factor(self, e, spec, program, gradients: dict, scaling) -> tuple:
        """The gradients that the update sees, and by what it multiplies them. ``gradients`` are
        reduced; ``scaling`` is the program's ``LossScale``."""
        is_wide = any(value.dtype == "f64" for value in gradients.values())
        wide = torch.float64 if is_wide else torch.float32
        held = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        trained = {name: value for name, value in gradients.items()
                   if id(program.states[name]) in held}
        factor, limits = GradientFactor(scaling, wide, spec, trained, program.shards), []
        if self._is_streamed("max_grad_norm", math.inf):
            limits.append(stream(e, NORM_STREAM))
        if spec.clip_norm is not None:
            limits.append(e.constant(spec.clip_norm, wide))
        if limits:
            factor.clip_norm(e, limits)
        if spec.clip_value is not None:
            gradients = {**gradients, **factor.clip_values(e, spec.clip_value)}
        return gradients, factor

    def whole_states(self, params: dict[str, torch.Tensor]) -> dict[str, str]:
        """Why the states of parameters cannot be parts of a tensor, by path; "": they can."""
        kind = spec_of(self.optimizer)
        found = dict.fromkeys(params, "it is not a parameter of the optimizer")
        names = {id(p): name for name, p in params.items()}
        for group in groups_of(self.optimizer):
            for name in (names[id(p)] for p in group["params"] if id(p) in names):
                if not kind.acts_on_parts:
                    found[name] = f"the update of {kind.name} needs the whole tensor"
                elif is_combined(group):
                    found[name] = "gradients are added to it (use_combined_accum)"
                elif all(state.has_no_dims for state in kind.states_of(group, params[name].shape)):
                    found[name] = "there are no states"
                else:
                    found[name] = ""
        return found

    def emit_update(self, e, program, gradients: dict, factor: GradientFactor,
                    gathered: dict) -> UpdateLayout:
        self.check_values()
        self._member_check(self.optimizer, "trainingModel")  # either may have changed since
        store = self._states.find_store()
        layout = update.emit_update(e, program, gradients, spec_of(self.optimizer),
                                    groups_of(self.optimizer), store.count, factor,
                                    gathered)
        fix(layout, self.optimizer)
        layout.streamed = [] if factor.loss_scale is None else ["loss_scaling"]
        if self._is_streamed("max_grad_norm", math.inf):
            layout.streamed.append("max_grad_norm")
        layout.loss, layout.states = factor.loss, factor.states
        return layout

    def check_values(self) -> None:
        """Raises an Error when a setting has a value that the device cannot use."""
        device_settings.check(self.optimizer)
        checks.check_differentiable(self.optimizer)


class _ExecutorStates:
    """The states of the programs of one executor. An object of its own, so that an executor that is
    forgotten can still let go of its programs. ``store`` is the optimizer's ``LiveStates``."""

    def __init__(self):
        self._optimizer = None
        self.store: LiveStates | None = None
        self._devices: list[DeviceStates] = []

    def use(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes an optimizer; where it has no state, it continues from the one before."""
        if self._optimizer is not None:
            self.find_store()
        if optimizer is self._optimizer:
            return
        old, before = self.store, self._optimizer
        self._optimizer, self.store = optimizer, live(optimizer)
        if old is None or old is self.store:
            return
        if spec_of(before) is spec_of(optimizer):
            members = {id(p) for group in optimizer.param_groups for p in group["params"]}
            self.store.take_over(old, self._devices, members)
        self._remember(old)

    def _remember(self, old: LiveStates) -> None:
        for device in self._devices:
            device.previous.append(weakref.ref(old))

    def find_store(self) -> LiveStates:
        """The ``LiveStates`` of the optimizer, also after a program replaced ``optimizer.state``,
        as ``load_state_dict`` of torch does."""
        if self._optimizer.state is not self.store:
            old, self.store = self.store, live(self._optimizer)
            self.store.names.add_from(old.names, takes_waiting=False)
            self.store.is_loaded = True
            self._remember(old)
        return self.store

    def add(self, device: DeviceStates, is_shown: bool) -> None:
        self.find_store().bind(device, is_shown)
        self._devices.append(device)

    def is_running(self, device: DeviceStates) -> bool:
        """Whether only runs of this program changed or read the state since its last run."""
        store = self.store
        return store.running is device and self._optimizer.state is store

    def give(self, device: DeviceStates) -> None:
        if not self.is_running(device):
            with interrupts.deferred():
                self.find_store().give(device, groups_of(self._optimizer))

    def pull(self, device: DeviceStates) -> None:
        """Reads the states of a program, before it changes their form."""
        with interrupts.deferred():
            self.store.release(device)
            device.pull_previous()

    def let_go(self) -> None:
        """As :meth:`release` of all programs, where the garbage collector calls it. Within an
        operation without values nothing is done: the optimizer keeps the programs until it is
        asked for a state."""
        if computes_values():
            for device in list(self._devices):
                self.release(device)

    def release(self, device: DeviceStates) -> None:
        self._devices.remove(device)
        self.store.release(device)
        device.pull_previous()
