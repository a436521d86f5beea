"""``optimizer.state`` of an optimizer that devices train with: current whenever it is read.

An optimizer has one :class:`LiveStates`, which takes the place of the dictionary that torch made.
It owns the state: of each parameter either the host has the newest value (it stands in the
dictionary), or one program does (``_newest``). Looking at the dictionary reads what is newer on
devices, once; then the next run writes what the host has, as whoever looked may have written.
Without a look nothing is copied. docs/internals/optimizers.md has the whole of it.
"""

import collections
import threading
import weakref

import torch

from poptorch._logging import logger
from poptorch._optimizer import looks
from poptorch._optimizer import spec as kinds
from poptorch._optimizer.device import DeviceStates, Values
from poptorch._optimizer.device_settings import groups_of
from poptorch._optimizer.rows import ROWS
from poptorch._optimizer.spec import COUNT, GLOBAL, LOSS_SCALING, STEP, OptimizerSpec
from poptorch._plain_torch import plain_torch
from poptorch._transparent import plain_access

KEPT = "_kept_states"


class LiveStates(collections.defaultdict):
    """The state of an optimizer by parameter, in torch's layout.

    For whoever looks it is a ``collections.defaultdict``: copies and pickles of it are plain ones.

    Args:
        content: what torch's dictionary holds.
        kept: what :meth:`kept` returned of an optimizer that was copied.

    Attributes:
        is_loaded: what the next run writes came from a ``load_state_dict``.
        owner: weak reference to the optimizer.
    """

    def __init__(self, content, kept: dict | None = None):
        super().__init__(dict, content)
        if dict.__contains__(self, GLOBAL):  # under this string, not one that is equal to it
            dict.__setitem__(self, GLOBAL, dict.pop(self, GLOBAL))
        kept = kept or {}
        self.is_loaded = False
        self.owner = None
        self._lock = threading.RLock()
        # The program of whose runs since then nothing was read; calls of it have nothing to do.
        self._running: DeviceStates | None = None
        self._newest: dict[int, DeviceStates] = {}
        # Of the programs that could run last: the kind, and names of parameters by identity.
        self._spec: OptimizerSpec | None = ROWS.get(kept.get("spec"))
        self._names = {id(p): (p, name) for p, name in kept.get("names", {}).items()}
        # What only the device counts (OptimizerSpec.counts).
        self._counts = {id(p): (p, count) for p, count in kept.get("counts", {}).items()}
        # Loaded by the names outside, for parameters whose names are not known yet.
        self._pending: Values = dict(kept.get("pending", {}))
        self._unknown: Values = {}
        # What torch's part had of parameters for which that waits, to see whether it was changed.
        self._waiting: dict[int, dict] = {}
        self._loaded_settings: Values | None = kept.get("settings")

    # -- what devices do -----------------------------------------------------------------------

    def bind(self, device: DeviceStates, is_shown: bool) -> None:
        """Takes note of the parameters of a program.

        Args:
            device: the program's states.
            is_shown: whether ``ipu_state`` shows them.
        """
        with self._lock:
            self._spec = device.spec
            for key, named in device.names.items():
                self._names.pop(key, None)  # to the end: of equal names the last one counts
                if is_shown:
                    self._names[key] = named
            self._pending = {**self._unknown, **self._pending}
            self._unknown = {}
            self._running = None

    def is_running(self, device: DeviceStates) -> bool:
        """Whether nothing happened to the state but runs of this program."""
        return self._running is device

    def fits(self, device: DeviceStates) -> bool:
        """Whether parameters that the program counts together have equal counts."""
        with self._lock, plain_torch():
            if not self._is_stale(device):
                return True
            self.settle()
            counts = {key: self._count_of(tensor) for key, tensor in device.tensors.items()}
            return device.uneven(counts) is None

    def give(self, device: DeviceStates, groups: list[dict]) -> None:
        """Before a run: gives a program the newest states, which from now on it has.

        Args:
            device: the program's states.
            groups: the optimizer's parameter groups, with the settings of the device.

        Raises:
            poptorch.Error: They do not fit.
        """
        with self._lock:
            if self._is_stale(device):
                self.settle()
                self._pull_previous(device)
                found = {key: self._values_of(tensor) for key, tensor in device.tensors.items()}
                device.write({key: values for key, values in found.items() if values}, groups)
            if self._pending:
                logger.warning("The model's optimizer has no state of the name %s: ignored.",
                               " or ".join(self._pending))
                self._unknown, self._pending = {**self._unknown, **self._pending}, {}
            self._pull_previous(device)
            self.ran(device)
            self.is_loaded = False

    def ran(self, device: DeviceStates) -> None:
        """Takes note that a program has the newest states of its parameters."""
        self._newest.update(dict.fromkeys(device.tensors, device))
        self._running = device

    def release(self, device: DeviceStates) -> None:
        """Reads what a program has, which will not be there any more."""
        with self._lock:
            self._pull(device)
            self._running = None

    def _is_stale(self, device: DeviceStates) -> bool:
        newest = self._newest
        return bool(self._pending) or any(newest.get(key) is not device for key in device.tensors)

    def _pull_previous(self, device: DeviceStates) -> None:
        """Stores of other optimizers that this program was given before it changes."""
        for reference in device.previous:
            other = reference()
            if other is not None and other is not self:
                other.release(device)
        device.previous.clear()

    def _pull(self, device: DeviceStates) -> None:
        mine = [key for key, newest in self._newest.items() if newest is device]
        if not mine:
            return
        with plain_torch():
            values = device.read()
            for key in mine:
                tensor, own = device.tensors[key], values[key]
                device.tell_of_late_writes(key, super().get(tensor))
                if tensor is GLOBAL:
                    super().__setitem__(tensor, own)
                elif own[COUNT].item() or super().__contains__(tensor):
                    if not device.spec.counts:
                        self._counts[key] = tensor, own.pop(COUNT)
                    super().__setitem__(tensor, own)
                del self._newest[key]

    def settle(self) -> None:
        """Brings the dictionary up to date. Called before whatever looks at it."""
        self._running = None
        if self._newest or self._pending:
            with self._lock, plain_torch():
                for device in list({id(d): d for d in self._newest.values()}.values()):
                    self._pull(device)
                self._place_pending()

    # -- values --------------------------------------------------------------------------------

    def _values_of(self, tensor: torch.Tensor) -> Values:
        """What the host has of one parameter, with its count; nothing if it has no state."""
        with plain_access():
            entry = super().get(tensor) or {}
        if tensor is GLOBAL:
            return {key: entry[key] for key in kinds.GLOBAL_STATES if entry.get(key) is not None}
        found = {state.key: entry[state.key] for state in self._spec.states
                 if entry.get(state.key) is not None}
        if self._spec.counts and entry.get(COUNT) is not None:
            found[COUNT] = entry[COUNT]
        elif not self._spec.counts and found:
            # torch counts nothing: what has a state has made at least one update.
            found[COUNT] = self._counts.get(id(tensor), (None, torch.tensor(1.0)))[1]
        return found

    def _count_of(self, tensor: torch.Tensor) -> float:
        return float(self._values_of(tensor).get(COUNT, 0.0))

    def counter(self, spec: OptimizerSpec):
        """A function of the name of a parameter and the parameter: the number of its updates."""
        self.settle()
        self._spec = spec

        def count(name: str, tensor: torch.Tensor) -> float:
            pending = self._pending.get(f"{STEP}___{name}")
            return self._count_of(tensor) if pending is None else float(pending)

        return count

    def _place_pending(self) -> None:
        """Gives parameters what was loaded by names, of those names that are known."""
        by_name = self._by_name()
        keys = {STEP: COUNT} | {s.outside: s.key for s in (self._spec.states if self._spec else ())}
        touched, outdated = {}, self._outdated(by_name.values())
        for name in list(self._pending):
            if name in kinds.GLOBAL_NAMES and "" in by_name:
                self._own_entry(GLOBAL)[kinds.GLOBAL_NAMES[name]] = self._pending.pop(name)
                continue
            outside, _, parameter = name.partition("___")
            tensor = by_name.get(parameter)
            if tensor is None or outside not in keys:
                continue
            value = self._pending.pop(name)
            if id(tensor) in outdated:  # steps were made since
                continue
            entry = self._own_entry(tensor)
            if keys[outside] == COUNT and not self._spec.counts:
                self._counts[id(tensor)] = tensor, value
            else:
                entry[keys[outside]] = value
            touched[id(tensor)] = tensor, entry
        for key, (tensor, entry) in touched.items():  # nothing was said of how often: never
            if self._spec.counts:
                entry.setdefault(COUNT, torch.tensor(0.0))
            else:
                self._counts.setdefault(key, (tensor, torch.tensor(0.0)))
        optimizer = self.owner and self.owner()
        group_of = {id(p): group for group in (groups_of(optimizer) if optimizer else ())
                    for p in group["params"]}
        for tensor, _ in touched.values():
            if self._spec.is_before(self._values_of(tensor), group_of.get(id(tensor))):
                with plain_access():  # what is shown of a parameter that has made no update
                    super().__delitem__(tensor)
                self._counts.pop(id(tensor), None)  # a step on the host may be the first one

    def _outdated(self, tensors) -> set[int]:
        """Identities of the parameters of which the state is another one since it was loaded."""
        found = set()
        with plain_access():
            for tensor in tensors:
                loaded = self._waiting.pop(id(tensor), None)
                if loaded is not None and not _is_as_marked(
                        super().get(tensor) or {}, loaded):
                    found.add(id(tensor))
        return found

    def _by_name(self) -> dict[str, torch.Tensor]:
        """The parameter of each name. One that parameters of two executors have stands for none of
        them: which it was would depend on the order of compilations."""
        found: dict[str, torch.Tensor | None] = {}
        for tensor, name in self._names.values():
            found[name] = None if name in found else tensor
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def _own_entry(self, tensor: torch.Tensor) -> dict:
        with plain_access():
            entry = super().get(tensor)
            if entry is None:
                entry = {}
                super().__setitem__(tensor, entry)
        return entry

    # -- what poptorch.optim shows ---------------------------------------------------------------

    def named(self, groups: list[dict]) -> Values | None:
        """``ipu_state``: the state by names, as it is or will be when the next run begins.

        Args:
            groups: the optimizer's parameter groups, with the settings of the device.
        """
        self.settle()
        if not self._names:
            return dict(self._pending) or None
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
                    found[state.of(name)] = state.before(tensor, group) if value is None else value
                if states:
                    found[f"{STEP}___{name}"] = torch.as_tensor(values.get(COUNT, 0.0)).float()
        return {**found, **self._pending}

    def settings(self, groups: list[dict]) -> Values | None:
        """``ipu_param``: the numbers that updates of these parameter groups use."""
        if not self._names:
            return self._loaded_settings
        found = {setting.of(name): value for group, _, name in self._named_members(groups)
                 for setting, value in self._spec.setting_values(group)}
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
        loaded = {name.partition("___")[2] for name in values or ()}
        named = {id(tensor) for name, tensor in self._by_name().items() if name in loaded}
        count = len({name.partition("___")[2] for name in values or ()})
        if GLOBAL in content:
            content[GLOBAL] = content.pop(GLOBAL)  # this string, not one that is equal to it
        if values and not self._names and count < len(content):
            logger.warning("ipu_state names %d parameters, state has %d: it is taken from state.",
                           count, len(content))
            values = None
        with self._lock, plain_torch():
            for tensor, entry in content.items():
                if values is None or id(tensor) not in named:
                    self._counts.pop(id(tensor), None)
                    super().__setitem__(tensor, entry)
                    if values is not None:
                        self._waiting[id(tensor)] = _mark(entry)
            self._pending = {**self._pending, **(values or {})}
            self._loaded_settings = settings
            self.is_loaded = bool(values or content)
            self._place_pending()

    # -- other optimizers ------------------------------------------------------------------------

    def take_over(self, other: "LiveStates", device: DeviceStates | None,
                  members: set[int]) -> None:
        """Takes over from another optimizer the state of parameters of which this has none.

        Args:
            other: that of the optimizer which this one's takes the place of.
            device: the program that was trained with it.
            members: identities of the parameters of this one's.
        """
        members = members | {id(GLOBAL)}
        with self._lock, other._lock, plain_torch():
            moved = {key for key, newest in other._newest.items() if newest is device}
            if other._newest.keys() - moved or other._pending:
                other.settle()
                moved = set()
            for key in moved & members - self._newest.keys():
                if not self._has_begun(device.tensors[key]):
                    self._newest[key] = device
            for tensor, entry in dict.items(other):
                key = id(tensor)
                if key in members and key not in moved and key not in self._newest \
                        and not self._has_begun(tensor):
                    super().__setitem__(tensor, _copied(entry))
                    if key in other._counts:
                        self._counts[key] = other._counts[key]
            self._spec = self._spec or other._spec
            self._names = {**other._names, **self._names}
            self._pending = {**other._pending, **self._pending}
            self._loaded_settings = self._loaded_settings or other._loaded_settings
            self.is_loaded = self.is_loaded or other.is_loaded

    def has_begun(self) -> bool:
        """Whether there is a state of any parameter."""
        self.settle()
        return any(map(self._has_begun, list(dict.keys(self))))

    def _has_begun(self, tensor: torch.Tensor) -> bool:
        """Whether there is a state of a parameter. That which an optimizer has when it is made, as
        Adagrad does, is none."""
        with plain_access():
            entry = super().get(tensor)
        return entry is not None and float(entry.get(COUNT, 1.0)) != 0

    def succeed(self, other: "LiveStates") -> None:
        """Takes the place of a dictionary that the program replaced, with another content."""
        self._spec = self._spec or other._spec
        self._names = {**other._names, **self._names}
        self.is_loaded = True

    # -- copies --------------------------------------------------------------------------------

    def kept(self) -> dict:
        """What a copy of an optimizer of ``poptorch.optim`` needs beside the plain dictionary."""
        self.settle()
        with plain_access():
            kept = {"spec": self._spec and self._spec.cls,
                    "names": {p: name for p, name in self._names.values()},
                    "counts": {p: count for p, count in self._counts.values()},
                    "pending": self._pending, "settings": self._loaded_settings}
        return {name: value for name, value in kept.items() if value}

    def without(self, device: DeviceStates) -> collections.defaultdict:
        """A plain dictionary of the states that a program does not have."""
        for other in {id(d): d for d in self._newest.values()}.values():
            if other is not device:
                self._pull(other)
        return collections.defaultdict(dict, {tensor: entry for tensor, entry in dict.items(self)
                                              if id(tensor) not in device.tensors})

    def copy(self) -> collections.defaultdict:
        """A plain dictionary of the same content."""
        self.settle()
        with plain_access():
            return collections.defaultdict(self.default_factory, dict.items(self))

    __copy__ = copy

    def __reduce__(self):
        self.settle()
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


def _mark(entry: dict) -> dict:
    return {key: (value, getattr(value, "_version", None)) for key, value in entry.items()}


def _is_as_marked(entry: dict, mark: dict) -> bool:
    return entry.keys() == mark.keys() and all(
        entry[key] is value and getattr(value, "_version", None) == version
        for key, (value, version) in mark.items())


def _copied(entry: dict) -> dict:
    # Steps on the host change tensors in place, and each optimizer only its own.
    return {key: value.clone() if isinstance(value, torch.Tensor) else value
            for key, value in entry.items()}


looks.add_to(LiveStates)


def live(optimizer: torch.optim.Optimizer) -> LiveStates:
    """The :class:`LiveStates` of an optimizer, which from now on is its ``state``."""
    found = optimizer.state
    if type(found) is not LiveStates:
        found = optimizer.state = LiveStates(found, vars(optimizer).pop(KEPT, None))
    if found.owner is None or found.owner() is not optimizer:
        found.owner = weakref.ref(optimizer)
    return found


def remember(device: DeviceStates, store: LiveStates) -> None:
    """Notes that an optimizer which a program no longer has may still be looked at."""
    device.previous.append(weakref.ref(store))
