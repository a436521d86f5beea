"""The part of ``LiveStates`` that knows states by the names outside: ``ipu_state`` of
``poptorch.optim``, and what ``load_state_dict`` was given in that form.

The host has every state as PyTorch has it; outside it is as the device has it, a velocity times
``velocity_scaling``.
"""

import weakref

import torch

from poptorch._base.hidden_subclass import plain_access
from poptorch._base.logging import logger
from poptorch._base.torch_private.modes_off import plain_torch
from poptorch._optimizer import spec as kinds
from poptorch._optimizer.device_settings import groups_of, is_combined
from poptorch._optimizer.owners import begun_names, owners_of, parameter_of
from poptorch._optimizer.pending import Pending, Values, is_as_marked, mark
from poptorch._optimizer.rows import ROWS
from poptorch._optimizer.spec import (
    COUNT,
    GLOBAL,
    LOSS_SCALING,
    STEP,
    VELOCITY_SCALING,
    OptimizerSpec,
    divided,
    number_type,
)


class ByName:
    """Names of parameters, counts of updates, and what waits for names.

    A part of a dictionary of the states by parameter, which calls :meth:`_begin`.

    Attributes:
        is_loaded: what the next run writes came from a ``load_state_dict``.
        owner: weak reference to the optimizer.
    """

    is_loaded: bool
    owner: weakref.ref | None

    def _begin(self, kept: dict) -> None:
        self.is_loaded = False
        self.owner = None
        # Of the programs that could run last: the kind, and names of parameters by identity.
        self._spec: OptimizerSpec | None = ROWS.get(kept.get("spec"))
        self._names = {id(p): (p, name) for p, name in kept.get("names", {}).items()}
        # What only the device counts (OptimizerSpec.counts).
        self._counts = {id(p): (p, count) for p, count in kept.get("counts", {}).items()}
        # States that have a count of 0, to see whether a step on the host was made with them.
        self._unused: dict[int, dict] = {}
        self._pending = Pending(kept, dict.items(self))
        self._loaded_settings: Values | None = kept.get("settings")

    # -- values --------------------------------------------------------------------------------

    def _values_of(self, tensor: torch.Tensor) -> Values:
        """What the host has of one parameter, with its count; nothing if it has no state."""
        with plain_access():
            entry = dict.get(self, tensor) or {}
        if tensor is GLOBAL:
            return {key: entry[key] for key in kinds.GLOBAL_STATES if entry.get(key) is not None}
        found = {state.key: entry[state.key] for state in self._spec.states
                 if entry.get(state.key) is not None}
        if self._spec.counts and entry.get(COUNT) is not None:
            found[COUNT] = entry[COUNT]
        elif not self._spec.counts and found:
            found[COUNT] = self._counted(tensor, entry)
        return found

    def _counted(self, tensor: torch.Tensor, entry: dict) -> torch.Tensor:
        """The updates of a parameter that has a state, where torch counts nothing."""
        unused = self._unused.get(id(tensor))
        if unused is not None and not is_as_marked(entry, unused):
            del self._unused[id(tensor)]
            self._counts.pop(id(tensor), None)
        # What has a state has made at least one update.
        return self._counts.get(id(tensor), (None, torch.ones((), dtype=number_type())))[1]

    def _note_count(self, tensor: torch.Tensor, count: torch.Tensor, entry: dict) -> None:
        self._counts[id(tensor)] = tensor, count
        self._unused.pop(id(tensor), None)
        if not count:
            self._unused[id(tensor)] = mark(entry)

    def _count_of(self, tensor: torch.Tensor) -> float:
        return float(self._values_of(tensor).get(COUNT, 0.0))

    def counter(self, spec: OptimizerSpec):
        """A function of the name of a parameter and the parameter: the number of its updates."""
        self.settle()
        self._spec = spec
        changed = self._changed()

        def count(name: str, tensor: torch.Tensor) -> float:
            waiting = self._pending.values.get(f"{STEP}___{name}")
            is_outdated = id(tensor) in changed or self._pending.is_of_another(tensor, name)
            return self._count_of(tensor) if waiting is None or is_outdated else float(waiting)

        return count

    def _own_entry(self, tensor: torch.Tensor) -> dict:
        with plain_access():
            entry = dict.get(self, tensor)
            if entry is None:
                entry = {}
                dict.__setitem__(self, tensor, entry)
        return entry

    def _by_name(self) -> dict[str, torch.Tensor]:
        """The parameter of each name. One that parameters of two executors have stands for none of
        them: which it was would depend on the order of compilations."""
        found: dict[str, torch.Tensor | None] = {}
        for tensor, name in self._names.values():
            found[name] = None if name in found else tensor
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    # -- what waits ----------------------------------------------------------------------------

    def _changed(self) -> set[int]:
        with plain_access():
            return self._pending.changed(dict.items(self))

    def _place_pending(self) -> None:
        """Gives parameters what was loaded by names, of those names that are known."""
        waiting, by_name, changed = self._pending, self._by_name(), self._changed()
        for name in waiting.values.keys() & kinds.GLOBAL_NAMES.keys() if "" in by_name else ():
            self._own_entry(GLOBAL)[kinds.GLOBAL_NAMES[name]] = waiting.values.pop(name)
        keys = {STEP: COUNT} | {s.outside: s.key for s in (self._spec.states if self._spec else ())}
        optimizer = self.owner and self.owner()
        group_of = {id(p): group for group in (groups_of(optimizer) if optimizer else ())
                    for p in group["params"]}
        for name, tensor in by_name.items():
            is_other = id(tensor) in changed or waiting.is_of_another(tensor, name)
            values = {key: waiting.values.pop(f"{outside}___{name}")
                      for outside, key in keys.items() if f"{outside}___{name}" in waiting.values}
            if values and not is_other:
                self._place(tensor, values, group_of.get(id(tensor)), waiting.scale_of(name))
        waiting.end_if_empty()

    def _place(self, tensor: torch.Tensor, values: Values, group: dict | None,
               scale: float | None) -> None:
        """Lays values over what a parameter has.

        Args:
            tensor: the parameter.
            values: by torch's keys.
            group: of the parameter.
            scale: the velocity scaling of the values; None: that of the group.
        """
        entry = self._own_entry(tensor)
        for state in self._spec.states:
            if state.key in values and state.velocity_power:
                own = 1.0 if group is None else state.scale_in(group)
                values[state.key] = divided(values[state.key], own if scale is None else scale)
        # Where nothing is said of how often: never.
        if self._spec.counts:
            entry.setdefault(COUNT, torch.zeros((), dtype=number_type()))
            entry |= values
        else:
            known = self._counts.get(id(tensor), (None, torch.zeros(())))[1]
            count = values.pop(COUNT, known)
            entry |= values
            self._note_count(tensor, count, entry)
        if self._spec.is_before(self._values_of(tensor), group):
            with plain_access():  # what is shown of a parameter that has made no update
                dict.__delitem__(self, tensor)
            self._counts.pop(id(tensor), None)  # a step on the host may be the first one

    # -- what poptorch.optim shows ---------------------------------------------------------------

    def named(self, groups: list[dict]) -> Values | None:
        """``ipu_state``: the state by names, as it is or will be when the next run begins.

        Args:
            groups: the optimizer's parameter groups, with the settings of the device.
        """
        self.settle()
        waiting = self._pending.current(self._changed())
        if not self._names:
            return dict(waiting) or None
        found = {}
        with plain_torch():
            if "" in self._by_name():
                values = self._values_of(GLOBAL)
                found = {name: values.get(key, torch.tensor(initial))
                         for key, (name, initial) in kinds.GLOBAL_STATES.items()}
            for group, tensor, name in self._named_members(groups):
                values = self._values_of(tensor)
                states = self._spec.states_of(group, tensor.shape)
                for state in states:
                    value = values.get(state.key)
                    found[state.of(name)] = state.before(tensor, group) if value is None else \
                        state.on_device(value, tensor, group)
                if states:
                    found[f"{STEP}___{name}"] = torch.as_tensor(values.get(COUNT, 0.0)).float()
        return {**found, **waiting}

    def settings(self, groups: list[dict]) -> Values | None:
        """``ipu_param``: the numbers that updates of these parameter groups use."""
        if not self._names:
            return self._loaded_settings
        found = self._pending.scales()
        for group, _, name in self._named_members(groups):
            found |= {setting.of(name): value for setting, value
                      in self._spec.setting_values(group)}
            if any(state.velocity_power for state in self._spec.states) and is_combined(group):
                found[VELOCITY_SCALING.of(name)] = group["velocity_scaling"]
        found[LOSS_SCALING] = groups[0]["loss_scaling"]
        with plain_torch():
            return {name: torch.tensor(value, dtype=torch.float32) for name, value in found.items()}

    def _named_members(self, groups: list[dict]):
        names = {id(tensor): name for name, tensor in self._by_name().items()}
        for group in groups:
            for tensor in group["params"]:
                if id(tensor) in names:
                    yield group, tensor, names[id(tensor)]

    def load(self, values: Values | None, settings: Values | None, content: dict) -> None:
        """Takes what ``load_state_dict`` of an optimizer of ``poptorch.optim`` was given.

        Args:
            values: the state by names outside. None: what ``content`` holds.
            settings: the settings that were saved with it.
            content: the state that torch's part of it had, by parameter.
        """
        self.settle()
        if GLOBAL in content:
            content[GLOBAL] = content.pop(GLOBAL)  # this string, not one that is equal to it
        values = self._unless_unclear(values, content)
        loaded = set(map(parameter_of, values or ()))
        with self._lock, plain_torch():
            if values:
                self._pending.add(values, settings, content, self._changed() | {*map(id, content)})
                self._pending.owners |= owners_of(self.owner and self.owner(), values, content,
                                                  self._pending.scale_of)
            named = {id(tensor) for name, tensor in self._by_name().items()
                     if name in loaded and not self._pending.is_of_another(tensor, name)}
            for tensor, entry in content.items():
                if id(tensor) not in named:
                    self._counts.pop(id(tensor), None)
                    dict.__setitem__(self, tensor, entry)
            if values:
                self._pending.begin(dict.items(self))
            self._loaded_settings = settings
            self.is_loaded = bool(values or content)
            self._place_pending()

    def _unless_unclear(self, values: Values | None, content: dict) -> Values | None:
        """The state by names; None where it misses parameters that torch's part has, or has names
        of several programs, which may call different parameters the same."""
        if not values or not content:
            return values
        optimizer = self.owner and self.owner()
        count = len(begun_names(values))
        if not self._names and count < len(content):
            logger.warning("ipu_state names %d parameters, state has %d: it is taken from state.",
                           count, len(content))
            return None
        names = set(map(parameter_of, values)) - {""}
        members = sum(len(group["params"]) for group in groups_of(optimizer)) if optimizer else 0
        if members and len(names) > members:
            logger.warning("ipu_state has %d names, the optimizer %d parameters, so that several "
                           "programs gave them: it is taken from state.", len(names), members)
            return None
        return values
