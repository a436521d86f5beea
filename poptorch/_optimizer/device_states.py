"""The optimizer's states in one compiled program."""

import torch

from poptorch._base.logging import logger
from poptorch._base.torch_private.modes_off import plain_torch
from poptorch._base.types import check_dense, host_tensor, pair_sizes, real_dtype, torch_dtype
from poptorch._optimizer.spec import (
    COUNT,
    GLOBAL,
    GLOBAL_STATES,
    STEP,
    OptimizerSpec,
    multiplied,
    number_type,
)
from poptorch._weights import values as device_values
from poptorch.errors import Error

Values = dict[str, torch.Tensor]


class DeviceStates:
    """Reads and writes the states of all parameters that a program updates.

    Attributes:
        names: each parameter that is updated and its name, by identity; some have no state.
        tensors: the parameters that have one, by identity.
        previous: weak references to the ``LiveStates`` of optimizers that this program had before.
    """

    def __init__(self, program, executable):
        layout = program.optimizer
        self.spec: OptimizerSpec = layout.spec
        self.names = {id(tensor): (tensor, name)
                      for group in layout.groups for name, tensor in group.params}
        self.previous: list = []
        self._executable = executable
        states = {state.path: state for state in executable.states()}
        # (entry, state of the program, groups of the weight)
        self._entries = [
            (entry, states[entry.path],
             None if layout.has_no_dims(entry.key) else program.weight_groups.get(entry.parameter))
            for entry in layout.entries() if entry.path in states]
        self.tensors = {id(entry.tensor): entry.tensor for entry, _, _ in self._entries}
        if GLOBAL in self.tensors.values():
            self.names[id(GLOBAL)] = GLOBAL, ""
        # What the host had of each parameter when it was last written here: (tensor, version).
        self._given: dict[int, dict[str, tuple]] = {}
        self._has_warned = False

    def _scale_of(self, entry) -> float:
        """The factor by which the device has a state multiplied."""
        is_scaled = any(s.key == entry.key and s.velocity_power for s in self.spec.states)
        return entry.group.velocity_scaling if is_scaled else 1.0

    def outside(self, key: str, parameter: str) -> str:
        """What a state is called in ``ipu_state``."""
        if key == COUNT:
            return f"{STEP}___{parameter}"
        if not parameter:
            return GLOBAL_STATES[key][0]
        return next(state.of(parameter) for state in self.spec.states if state.key == key)

    def read(self) -> dict[int, Values]:
        """The states of each parameter and its count, by identity and torch's keys. They have the
        type of the parameter, or that of the device if it is wider."""
        found: dict[int, Values] = {}
        counts: Values = {}
        # Tensors that are made for inference could not be updated on the host.
        with plain_torch(), torch.inference_mode(False), torch.no_grad():
            for entry, state, groups in self._entries:
                if entry.key == COUNT and entry.path in counts:
                    value = counts[entry.path].clone()
                else:
                    value = device_values.read(self._executable, state, groups)
                if entry.key == COUNT:
                    value = counts[entry.path] = value.to(number_type())
                elif entry.tensor is not GLOBAL:
                    if entry.tensor.is_complex() and value.dim() > entry.tensor.dim():
                        value = torch.view_as_complex(value)
                    own = entry.tensor.dtype
                    own = own if value.is_complex() else real_dtype(own)
                    value = value.to(torch.promote_types(value.dtype, own))
                    value = multiplied(value, 1 / self._scale_of(entry))
                found.setdefault(id(entry.tensor), {})[entry.key] = value
        return found

    def write(self, values: dict[int, Values], groups: list[dict]) -> None:
        """Gives the program the states of all parameters, by identity and torch's keys; what is not
        among them begins as it does before the first update.

        Raises an Error if a value is not of the shape of the device's.
        """
        with plain_torch():
            self._check_shapes(values)
            group_of = {id(p): group for group in groups for p in group["params"]}
            for entry, state, weight_groups in self._entries:
                value = values.get(id(entry.tensor), {}).get(entry.key)
                if value is None:
                    value = self._initial(entry, group_of.get(id(entry.tensor)))
                if value is None:
                    self._executable.clear_state(state.path)
                else:
                    value = multiplied(torch.as_tensor(value), self._scale_of(entry))
                    host = _of_type(value, torch_dtype(state.dtype), entry.path)
                    device_values.write(self._executable, state.path, host, weight_groups)
        self._given = {key: {name: (value, version(value)) for name, value in own.items()}
                       for key, own in values.items()}

    def _initial(self, entry, group: dict | None) -> torch.Tensor | None:
        """What a state is before the first update; None: zeros."""
        for state in self.spec.states if group is not None else ():
            if state.key == entry.key and state.initial_in(group):
                return state.before(entry.tensor, group)
        return None

    def uneven(self, counts: dict[int, float]) -> tuple | None:
        """Two parameters that the program counts together and that differ: name and count of the
        one, then of the other. None: there are none. Parameters without a count have no update."""
        seen: dict[str, tuple] = {}
        for entry, _, _ in self._entries:
            if entry.key == COUNT:
                count = counts.get(id(entry.tensor), 0.0)
                mine = self.outside(COUNT, entry.parameter), count
                first = seen.setdefault(entry.path, mine)
                if first[1] != count:
                    return *first, *mine
        return None

    def warn_of_late_writes(self, key: int, values: Values | None) -> None:
        """Warns, once, that the host wrote to a state whose newer value was on the device."""
        given = self._given.pop(key, None)
        if given is None or self._has_warned:
            return
        now = values or {}
        if any(now.get(name) is not value or version(value) != known
               for name, (value, known) in given.items() if name in now or name != COUNT):
            self._has_warned = True
            logger.warning("The program wrote to an outdated state of %s, which it had read "
                           "before the last run: what it wrote is lost. Read optimizer.state "
                           "again after a run, then write.", self.names[key][1])

    def pull_previous(self, present=None) -> None:
        """Lets former optimizers of the program read their states, before the program changes. The
        ``present`` one may be a former one, too."""
        for reference in self.previous:
            store = reference()
            if store is not None and store is not present:
                store.release(self)
        self.previous.clear()

    def _check_shapes(self, values: dict[int, Values]) -> None:
        for entry, state, groups in self._entries:
            value = values.get(id(entry.tensor), {}).get(entry.key)
            if value is None:
                continue
            value = torch.as_tensor(value)
            shape, sizes = tuple(pair_sizes(value.shape, value.dtype)), tuple(state.sizes)
            if groups is not None and shape[1:] == sizes:
                groups.check(self.outside(entry.key, entry.parameter), shape)
            elif groups is not None or shape != sizes:
                needed = sizes if groups is None else (groups.count, *sizes)
                raise Error(f"[load_state_dict] {self.outside(entry.key, entry.parameter)} has "
                            f"the shape {shape}, the model needs {needed}. Load the state of an "
                            f"optimizer of the same model.")


def version(value) -> int | None:
    """The version of a tensor; None where there is none."""
    if not isinstance(value, torch.Tensor) or value.is_inference():
        return None
    return value._version


def _of_type(tensor: torch.Tensor, dtype: torch.dtype, name: str) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(host_tensor(tensor, name))
    if tensor.dtype is not dtype:
        return host_tensor(tensor, name).to(dtype)
    check_dense(tensor, name)
    return tensor.detach().contiguous()
