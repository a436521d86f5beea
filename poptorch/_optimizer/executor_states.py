"""The optimizer's states in all programs of one executor."""

import weakref

import torch

from poptorch._base import interrupts
from poptorch._base.torch_private.modes_off import computes_values
from poptorch._optimizer.device_states import DeviceStates
from poptorch._optimizer.live_states import LiveStates, live
from poptorch._optimizer.rows import spec_of
from poptorch._optimizer.settings import groups_of


class ExecutorStates:
    """The states of the programs of one executor. An object of its own, so that an executor that
    is forgotten can still let go of its programs.

    Attributes:
        store: the ``LiveStates`` of the optimizer.
    """

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
            self.store.replace(old)
            self._remember(old)
        return self.store

    def add(self, device: DeviceStates, is_shown: bool) -> None:
        """Adds a program.

        Args:
            device: its states.
            is_shown: whether ``ipu_state`` shows them.
        """
        self.find_store().bind(device, is_shown)
        self._devices.append(device)

    def is_running(self, device: DeviceStates) -> bool:
        """Whether only runs of this program changed or read the state since its last run."""
        store = self.store
        return store.running is device and self._optimizer.state is store

    def give(self, device: DeviceStates) -> None:
        """Gives a program the newest states."""
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
        """Reads what a program has, and lets go of it."""
        self._devices.remove(device)
        self.store.release(device)
        device.pull_previous()
