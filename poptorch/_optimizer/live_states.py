"""``optimizer.state`` of an optimizer that devices train with: up to date whenever it is read.

An optimizer has one :class:`LiveStates`, which replaces the dictionary that torch made. It owns
the state. For each parameter either the host has the newest value, in the dictionary, or one
program has it (``_newest``). An access to the dictionary reads everything that is newer on devices.
The next run then writes all states to its program, because the reader may have changed them. A run
without an access before it copies nothing. docs/internals/optimizers.md has the rules.
"""

import collections
import threading
import weakref
from collections.abc import Collection

import torch

from poptorch._base.logging import logger
from poptorch._base.torch_private.basic import plain_access
from poptorch._base.torch_private.modes_off import plain_torch
from poptorch._optimizer.device_states import DeviceStates, Values
from poptorch._optimizer.rows import spec_of
from poptorch._optimizer.settings import groups_of
from poptorch._optimizer.spec import COUNT, GLOBAL, GLOBAL_STATES, STEP, number_type
from poptorch._optimizer.state_names import StateNames, use_saved_form

KEPT = "_kept_states"


class LiveStates(collections.defaultdict):
    """The state of an optimizer by parameter, in PyTorch's layout.

    Users see a ``collections.defaultdict``. Its copies and pickles are plain ones.

    Attributes:
        owner: weak reference to the optimizer.
        is_loaded: ``load_state_dict`` came after the last run.
        running: the program that ran last, if nothing accessed the state since; else None.
        names: names of parameters, and loaded values that wait for one.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, content: dict, kept: dict):
        super().__init__(dict, content)
        if dict.__contains__(self, GLOBAL):  # this very string: its identity is a key of _newest
            dict.__setitem__(self, GLOBAL, dict.pop(self, GLOBAL))
        self._lock = threading.RLock()
        self.owner, self._spec = weakref.ref(optimizer), spec_of(optimizer)
        self.names = StateNames(self._spec, kept)
        self.is_loaded = False
        self.running: DeviceStates | None = None
        self._newest: dict[int, DeviceStates] = {}
        # Updates of parameters, where torch's optimizer does not count (OptimizerSpec.counts).
        self._counts = {id(p): (p, count) for p, count in kept.get("counts", {}).items()}

    def _groups(self) -> list[dict]:
        optimizer = self.owner()
        return [] if optimizer is None else groups_of(optimizer)

    # -- values --------------------------------------------------------------------------------

    def _values_of(self, tensor: torch.Tensor | str) -> Values:
        """The host's states of one parameter, with its count; empty if it has none."""
        with plain_access():
            entry = dict.get(self, tensor) or {}
        if tensor is GLOBAL:
            return {key: entry[key] for key in GLOBAL_STATES if entry.get(key) is not None}
        keys = [state.key for state in self._spec.states] + [COUNT] * self._spec.counts
        found = {key: entry[key] for key in keys if entry.get(key) is not None}
        if found and not self._spec.counts:  # a parameter with a state had at least one update
            one = torch.ones((), dtype=number_type())
            found[COUNT] = self._counts.get(id(tensor), (tensor, one))[1]
        return found

    def _count_of(self, tensor: torch.Tensor) -> float:
        return float(self._values_of(tensor).get(COUNT, 0.0))

    def count(self, name: str, tensor: torch.Tensor) -> float:
        """The number of updates of a parameter, which a program that is compiled calls ``name``."""
        self.refresh()
        waiting = self.names.waiting.get(f"{STEP}___{name}")
        return self._count_of(tensor) if waiting is None else float(waiting)

    def named(self, groups: list[dict]) -> Values | None:
        """``ipu_state``: the states by name, as the next run begins with them."""
        self.refresh()
        return self.names.states(self._values_of, groups)

    # -- what load_state_dict gives --------------------------------------------------------------

    def load(self, values: Values | None, settings: Values | None, content: dict,
             names: list[tuple]) -> None:
        """Takes what ``load_state_dict`` of an optimizer of ``poptorch.optim`` was given:
        ``ipu_state``, ``ipu_param``, PyTorch's part of the state by parameter, and the parameters
        with the names that the state has for them."""
        self.refresh()
        if GLOBAL in content:
            content[GLOBAL] = content.pop(GLOBAL)  # this very string
        with self._lock, plain_torch():
            self.names.loaded(values, settings, names)
            given = {name.partition("___")[2] for name in values or ()}
            kept = {id(tensor) for name, tensor in self.names.by_name().items() if name in given}
            for tensor, entry in content.items():
                if id(tensor) not in kept:
                    self._counts.pop(id(tensor), None)
                if id(tensor) not in kept or not dict.__contains__(self, tensor):
                    dict.__setitem__(self, tensor, entry)
            self.is_loaded = bool(values or content)
            self._place_waiting()

    def _place_waiting(self) -> None:
        """Gives parameters the loaded values of their names."""
        for tensor, group, values in self.names.take(self._groups()):
            self._place(tensor, group, values)

    def _place(self, tensor: torch.Tensor | str, group: dict | None, values: Values) -> None:
        with plain_access():
            entry = dict.setdefault(self, tensor, {})
        if tensor is GLOBAL:
            entry |= values
            return
        if self._spec.counts:
            entry.setdefault(COUNT, torch.zeros((), dtype=number_type()))
        elif COUNT in values:
            self._counts[id(tensor)] = tensor, values.pop(COUNT)
        else:
            self._counts.setdefault(id(tensor), (tensor, torch.zeros(())))
        entry |= values
        if self._spec.is_before(self._values_of(tensor), group):
            with plain_access():  # no update was made: no state, as in eager mode
                dict.__delitem__(self, tensor)
            self._counts.pop(id(tensor), None)
        elif not self._spec.counts and not self._counts[id(tensor)][1]:
            del self._counts[id(tensor)]  # a velocity without a count

    # -- what programs do ----------------------------------------------------------------------

    def bind(self, device: DeviceStates, is_shown: bool) -> None:
        """Takes the names of the parameters of a program; ``ipu_state`` shows them if ``is_shown``.
        """
        with self._lock:
            self.names.add(device.names.values(), is_shown)
            self.running = None

    def uneven(self, device: DeviceStates) -> tuple | None:
        with self._lock, plain_torch():
            if not self._is_stale(device):
                return None
            self.refresh()
            counts = {key: self._count_of(tensor) for key, tensor in device.tensors.items()}
            return device.uneven(counts)

    def give(self, device: DeviceStates, groups: list[dict]) -> None:
        """Before a run: gives a program the newest states, which it owns from now on. Raises an
        Error if they do not fit."""
        with self._lock:
            device.pull_previous(self)
            if self._is_stale(device):
                self.refresh()
                found = {key: self._values_of(tensor) for key, tensor in device.tensors.items()}
                device.write({key: values for key, values in found.items() if values}, groups)
            if self.names.waiting:
                logger.warning("The model's optimizer has no state of the name %s: ignored.",
                               " or ".join(self.names.waiting))
                self.names.waiting.clear()
            self.ran(device)
            self.is_loaded = False

    def ran(self, device: DeviceStates) -> None:
        """Notes that a program has the newest states of its parameters."""
        self._newest.update(dict.fromkeys(device.tensors, device))
        self.running = device

    def release(self, device: DeviceStates) -> None:
        """Reads the states that only a program has, before it is given up or changed."""
        with self._lock:
            self._pull(device)
            self.running = None

    def _is_stale(self, device: DeviceStates) -> bool:
        newest = self._newest
        return bool(self.names.waiting) or any(
            newest.get(key) is not device for key in device.tensors)

    def _pull(self, device: DeviceStates) -> None:
        mine = [key for key, newest in self._newest.items() if newest is device]
        if not mine:
            return
        with plain_torch():
            values = device.read()
            for key in mine:
                tensor, own = device.tensors[key], values[key]
                device.warn_of_late_writes(key, super().get(tensor))
                if tensor is GLOBAL:
                    super().__setitem__(tensor, own)
                elif own[COUNT].item() or super().__contains__(tensor):
                    if not self._spec.counts:
                        self._counts[key] = tensor, own.pop(COUNT)
                    super().__setitem__(tensor, own)
                del self._newest[key]

    def refresh(self) -> None:
        """Brings the dictionary up to date. Every access to it calls this first."""
        self.running = None
        if self._newest or self.names.waiting:
            with self._lock, plain_torch():
                for device in list({id(d): d for d in self._newest.values()}.values()):
                    self._pull(device)
                self._place_waiting()

    # -- other optimizers ------------------------------------------------------------------------

    def take_over(self, other: "LiveStates", devices: Collection[DeviceStates],
                  members: set[int]) -> None:
        """Takes the states of parameters (``members``) that this optimizer has none of from the one
        that it replaces. States that ``devices``, the programs of the executor, have stay there."""
        members = members | {id(GLOBAL)}
        with self._lock, other._lock, plain_torch():
            if other.names.waiting or not all(d in devices for d in other._newest.values()):
                other.refresh()
            moved = dict(other._newest)
            has_begun = any(map(self._has_begun, list(dict.keys(self))))
            for key, device in moved.items():
                if key in members and key not in self._newest \
                        and not self._has_begun(device.tensors[key]):
                    self._newest[key] = device
            for tensor, entry in dict.items(other):
                key = id(tensor)
                if key in members and key not in moved and key not in self._newest \
                        and not self._has_begun(tensor):
                    super().__setitem__(tensor, _copied(entry))
                    if key in other._counts:
                        self._counts[key] = other._counts[key]
            self.names.add_from(other.names, takes_waiting=not has_begun)
            self.is_loaded = self.is_loaded or other.is_loaded

    def has_begun(self) -> bool:
        """Whether any parameter has a state."""
        self.refresh()
        return any(map(self._has_begun, list(dict.keys(self))))

    def _has_begun(self, tensor: torch.Tensor) -> bool:
        """Whether a parameter has a state, other than what Adagrad makes with the optimizer."""
        with plain_access():
            entry = super().get(tensor)
        return entry is not None and float(entry.get(COUNT, 1.0)) != 0

    # -- copies --------------------------------------------------------------------------------

    def kept(self) -> dict:
        """What a copy of an optimizer of ``poptorch.optim`` needs besides the plain dictionary."""
        self.refresh()
        with plain_access():
            kept = {"counts": dict(self._counts.values()), **self.names.kept()}
        return {name: value for name, value in kept.items() if value}

    def without(self, device: DeviceStates) -> collections.defaultdict:
        """A plain dictionary of the states that a program does not have."""
        for other in {id(d): d for d in self._newest.values()}.values():
            if other is not device:
                self._pull(other)
        return collections.defaultdict(dict, {tensor: entry for tensor, entry in dict.items(self)
                                              if id(tensor) not in device.tensors})

    def copy(self) -> collections.defaultdict:
        self.refresh()
        with plain_access():
            return collections.defaultdict(self.default_factory, dict.items(self))

    __copy__ = copy

    def __reduce__(self):
        self.refresh()
        return collections.defaultdict, (self.default_factory,), None, None, \
            iter(list(dict.items(self)))

    def __repr__(self) -> str:
        return repr(self.copy())

    def __or__(self, other):
        return self.copy() | other

    def __ror__(self, other):
        return other | self.copy()

    def __eq__(self, other):
        return self.copy() == other

    def __ne__(self, other):
        return self.copy() != other

    __hash__ = None


def _copied(entry: dict) -> dict:
    # Steps on the host change tensors in place, and each optimizer only its own.
    return {key: value.clone() if isinstance(value, torch.Tensor) else value
            for key, value in entry.items()}


def _accessing(name: str):
    original = getattr(collections.defaultdict, name)

    def method(self, *args, **kwargs):
        self.refresh()
        return original(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, original.__doc__
    return method


# Every access to the dictionary brings it up to date first.
for _name in ("__contains__", "__delitem__", "__getitem__", "__ior__", "__iter__", "__len__",
              "__reversed__", "__setitem__", "clear", "get", "items", "keys", "pop", "popitem",
              "setdefault", "update", "values"):
    setattr(LiveStates, _name, _accessing(_name))


def live(optimizer: torch.optim.Optimizer) -> LiveStates:
    """The :class:`LiveStates` of an optimizer, which from now on is its ``state``."""
    found = optimizer.state
    if type(found) is not LiveStates:
        use_saved_form(optimizer)
        kept = vars(optimizer).pop(KEPT, None) or {}
        found = optimizer.state = LiveStates(optimizer, optimizer.state, kept)
    if found.owner() is not optimizer:
        found.owner = weakref.ref(optimizer)
    return found
