"""The names under which ``ipu_state`` and ``ipu_param`` show the state of an optimizer.

A program names each parameter. ``state_dict()`` of an optimizer of ``poptorch.optim`` saves these
names in the parameter groups. A state without them waits until a program names the parameters. The
values have the form that the device has: a combined velocity is multiplied by ``velocity_scaling``.
"""

from collections.abc import Callable, Iterable, Iterator

import torch

from poptorch._base.torch_private.modes_off import plain_torch
from poptorch._optimizer.device_states import Values
from poptorch._optimizer.settings import is_combined
from poptorch._optimizer.spec import (
    COUNT,
    GLOBAL,
    GLOBAL_NAMES,
    GLOBAL_STATES,
    LOSS_SCALING,
    STEP,
    VELOCITY_SCALING,
    OptimizerSpec,
    StateTensor,
    multiplied,
)

_NAMES = "ipu_names"  # the key in the parameter groups of a saved state


class StateNames:
    """Names of parameters, and loaded values (``waiting``) whose names no parameter has yet."""

    def __init__(self, spec: OptimizerSpec, kept: dict):
        self._spec = spec
        self._named = {id(p): (p, name) for p, name in kept.get("names", {}).items()}
        self._scales: dict[str, float] = dict(kept.get("scales", {}))
        self._settings: Values | None = kept.get("settings")
        self.waiting: Values = dict(kept.get("waiting", {}))

    def kept(self) -> dict:
        return {"names": dict(self._named.values()), "scales": self._scales,
                "settings": self._settings, "waiting": self.waiting}

    def add(self, named: Iterable[tuple], is_shown: bool) -> None:
        """Names parameters; ``GLOBAL`` and "" for what exists once for all of them."""
        for tensor, name in named:
            self._named.pop(id(tensor), None)
            if is_shown:
                self._named[id(tensor)] = tensor, name

    def add_from(self, other: "StateNames", takes_waiting: bool) -> None:
        """Adds the names of another optimizer, and what waits there if ``takes_waiting``."""
        self._named = {**other._named, **self._named}
        self._settings = self._settings or other._settings
        if takes_waiting and not self.waiting:
            self.waiting, self._scales = dict(other.waiting), dict(other._scales)

    def by_name(self) -> dict[str, torch.Tensor]:
        """The parameter of each name. A name that parameters of two executors have names neither.
        """
        found: dict[str, torch.Tensor | None] = {}
        for tensor, name in self._named.values():
            found[name] = None if name in found else tensor
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    # -- saved states --------------------------------------------------------------------------

    def to_groups(self, groups: list[dict], saved: list[dict]) -> None:
        """Adds the names to the parameter groups of a saved state."""
        for group, target in zip(groups, saved):
            names = [self._named.get(id(p), (p, None))[1] for p in group["params"]]
            if any(name is not None for name in names):
                target[_NAMES] = names

    def loaded(self, values: Values | None, settings: Values | None, names: list[tuple]) -> None:
        """Takes ``ipu_state`` and ``ipu_param`` that were loaded; :meth:`take` gives them out."""
        self.add(names, is_shown=True)
        self._settings = settings
        prefix = VELOCITY_SCALING.of("")
        self._scales |= {name.removeprefix(prefix): float(value)
                         for name, value in (settings or {}).items() if name.startswith(prefix)}
        self.waiting = {**self.waiting, **(values or {})}

    def take(self, groups: list[dict]) -> Iterator[tuple]:
        """Gives out the waiting values of parameters that have a name: the parameter, its group,
        and the values by PyTorch's keys in the form that the host has."""
        by_name = self.by_name()
        if "" in by_name:
            names = [name for name in GLOBAL_NAMES if name in self.waiting]
            if names:
                yield GLOBAL, None, {GLOBAL_NAMES[n]: self.waiting.pop(n) for n in names}
        group_of = {id(p): group for group in groups for p in group["params"]}
        for name, tensor in by_name.items():
            group, values = group_of.get(id(tensor)), {}
            for state in self._spec.states:
                if state.of(name) in self.waiting:
                    value = self.waiting.pop(state.of(name))
                    values[state.key] = multiplied(value, 1 / self._scale(name, state, group))
            if f"{STEP}___{name}" in self.waiting:
                values[COUNT] = self.waiting.pop(f"{STEP}___{name}")
            if values:
                yield tensor, group, values

    def _scale(self, name: str, state: StateTensor, group: dict | None) -> float:
        """By what a waiting value is multiplied: the scaling it was saved with, or the group's."""
        if not state.velocity_power:
            return 1.0
        own = 1.0 if group is None else state.scale_in(group)
        return self._scales.get(name, own)

    # -- what is shown -------------------------------------------------------------------------

    def states(self, values_of: Callable, groups: list[dict]) -> Values | None:
        """``ipu_state``; None before a program is compiled or a state is loaded. ``values_of``
        returns the states of a parameter by PyTorch's keys."""
        if not self._named:
            return dict(self.waiting) or None
        found = {}
        with plain_torch():
            if "" in self.by_name():
                values = values_of(GLOBAL)
                found = {name: values.get(key, torch.tensor(initial))
                         for key, (name, initial) in GLOBAL_STATES.items()}
            for group, tensor, name in self._members(groups):
                values = values_of(tensor)
                states = self._spec.states_of(group, tensor.shape)
                for state in states:
                    value = values.get(state.key)
                    found[state.of(name)] = state.before(tensor, group) if value is None else \
                        state.on_device(value, tensor, group)
                if states:
                    found[f"{STEP}___{name}"] = torch.as_tensor(values.get(COUNT, 0.0)).float()
        return {**found, **self.waiting}

    def settings(self, groups: list[dict]) -> Values | None:
        """``ipu_param``: the numbers that the updates use."""
        if not self._named:
            return self._settings
        has_velocity = any(state.velocity_power for state in self._spec.states)
        found = {LOSS_SCALING: groups[0]["loss_scaling"]}
        for group, _, name in self._members(groups):
            found |= {setting.of(name): value for setting, value
                      in self._spec.setting_values(group)}
            if has_velocity and is_combined(group):
                found[VELOCITY_SCALING.of(name)] = group["velocity_scaling"]
        with plain_torch():
            return {name: torch.tensor(value, dtype=torch.float32) for name, value in found.items()}

    def _members(self, groups: list[dict]) -> Iterator[tuple[dict, torch.Tensor, str]]:
        names = {id(tensor): name for name, tensor in self.by_name().items()}
        for group in groups:
            for tensor in group["params"]:
                if id(tensor) in names:
                    yield group, tensor, names[id(tensor)]


def names_of(state_dict: dict, groups: list[dict]) -> list[tuple[torch.Tensor, str]]:
    """The parameters that a saved state names, with their names."""
    return [(tensor, name) for group, saved in zip(groups, state_dict["param_groups"])
            for tensor, name in zip(group["params"], saved.get(_NAMES, ())) if name is not None]


# -- the state that exists once for all parameters -----------------------------------------------
#
# ``optimizer.state`` has it under a string. Code that goes through a saved state by parameter, such
# as ``torch.distributed.checkpoint``, expects only parameters there. So a saved state has it in the
# first parameter group; both forms can be loaded.


def use_saved_form(optimizer: torch.optim.Optimizer) -> None:
    """Makes ``state_dict()`` and ``load_state_dict()`` of an optimizer use this form, and converts
    what was loaded before."""
    if _to_group not in optimizer._optimizer_state_dict_post_hooks.values():
        optimizer.register_state_dict_post_hook(_to_group)
        optimizer.register_load_state_dict_post_hook(_from_group)
    _from_group(optimizer)


def _to_group(optimizer: torch.optim.Optimizer, state_dict: dict) -> None:
    if state_dict["param_groups"] and GLOBAL in state_dict["state"]:
        state_dict["param_groups"][0][GLOBAL] = dict(state_dict["state"].pop(GLOBAL))


def _from_group(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        group.pop(_NAMES, None)
        if GLOBAL in group:
            optimizer.state[GLOBAL] = dict(group.pop(GLOBAL))
