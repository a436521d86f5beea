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

from poptorch._base.hidden_subclass import plain_access
from poptorch._base.torch_private.modes_off import plain_torch
from poptorch._optimizer import looks, shared_state
from poptorch._optimizer.by_name import ByName
from poptorch._optimizer.device import DeviceStates
from poptorch._optimizer.spec import COUNT, GLOBAL

KEPT = "_kept_states"


class LiveStates(ByName, collections.defaultdict):
    """The state of an optimizer by parameter, in torch's layout.

    For whoever looks it is a ``collections.defaultdict``: copies and pickles of it are plain ones.

    Args:
        content: what torch's dictionary holds.
        kept: what :meth:`kept` returned of an optimizer that was copied.
    """

    def __init__(self, content, kept: dict | None = None):
        super().__init__(dict, content)
        if dict.__contains__(self, GLOBAL):  # under this string, not one that is equal to it
            dict.__setitem__(self, GLOBAL, dict.pop(self, GLOBAL))
        self._begin(kept or {})
        self._lock = threading.RLock()
        # The program of whose runs since then nothing was read; calls of it have nothing to do.
        self._running: DeviceStates | None = None
        self._newest: dict[int, DeviceStates] = {}

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
            self._pending.try_again()
            self._running = None

    def is_running(self, device: DeviceStates) -> bool:
        """Whether nothing happened to the state but runs of this program."""
        return self._running is device

    def uneven(self, device: DeviceStates) -> tuple | None:
        """Parameters that the program counts together and whose counts differ, see
        :meth:`DeviceStates.uneven`."""
        with self._lock, plain_torch():
            if not self._is_stale(device):
                return None
            self.settle()
            counts = {key: self._count_of(tensor) for key, tensor in device.tensors.items()}
            return device.uneven(counts)

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
            self._pending.pass_over(device.tensors)
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
        return bool(self._pending.values) or any(
            newest.get(key) is not device for key in device.tensors)

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
            values, changed = device.read(), self._changed()
            for key in mine:
                tensor, own = device.tensors[key], values[key]
                device.tell_of_late_writes(key, super().get(tensor))
                if tensor is GLOBAL:
                    super().__setitem__(tensor, own)
                elif own[COUNT].item() or super().__contains__(tensor):
                    if not device.spec.counts:
                        self._note_count(tensor, own.pop(COUNT), own)
                    super().__setitem__(tensor, own)
                    if key not in changed:
                        self._pending.came(tensor, own)
                del self._newest[key]

    def settle(self) -> None:
        """Brings the dictionary up to date. Called before whatever looks at it."""
        self._running = None
        if self._newest or self._pending.values:
            with self._lock, plain_torch():
                for device in list({id(d): d for d in self._newest.values()}.values()):
                    self._pull(device)
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
            own = {id(tensor) for tensor in list(dict.keys(self)) if self._has_begun(tensor)}
            moved = {key for key, newest in other._newest.items() if newest is device}
            if other._newest.keys() - moved or other._pending.values:
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
            self._pending.merge(other._pending, dict.items(self), dict.items(other), own)
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
                    "settings": self._loaded_settings, **self._pending.kept(dict.items(self))}
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


def _copied(entry: dict) -> dict:
    # Steps on the host change tensors in place, and each optimizer only its own.
    return {key: value.clone() if isinstance(value, torch.Tensor) else value
            for key, value in entry.items()}


looks.add_to(LiveStates)


def live(optimizer: torch.optim.Optimizer) -> LiveStates:
    """The :class:`LiveStates` of an optimizer, which from now on is its ``state``."""
    found = optimizer.state
    if type(found) is not LiveStates:
        shared_state.watch(optimizer)
        found = optimizer.state = LiveStates(found, vars(optimizer).pop(KEPT, None))
    if found.owner is None or found.owner() is not optimizer:
        found.owner = weakref.ref(optimizer)
    return found


def remember(device: DeviceStates, store: LiveStates) -> None:
    """Notes that an optimizer which a program no longer has may still be looked at."""
    device.previous.append(weakref.ref(store))
