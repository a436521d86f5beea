"""The state of the optimizer that one executor has: the host's side and the program's."""

import copy

from poptorch._base import interrupts
from poptorch._base.torch_private.modes_off import computes_values
from poptorch._optimizer.device import DeviceStates
from poptorch._optimizer.device_settings import groups_of
from poptorch._optimizer.live import LiveStates, live, remember
from poptorch._optimizer.rows import spec_of


class OptimizerState:
    """Brings a store (``LiveStates``) and a program (``DeviceStates``) together.

    An object of its own, so that an executor that is forgotten can still let go of the program.
    """

    def __init__(self):
        self._optimizer = None
        self._store: LiveStates | None = None
        self._device: DeviceStates | None = None

    def use(self, optimizer) -> None:
        """Goes on with an optimizer: where it has no state, with that of the one before."""
        if self._optimizer is not None:
            self._look_for_another_store()
        if optimizer is self._optimizer:
            return
        old, before = self._store, self._optimizer
        self._optimizer, self._store = optimizer, live(optimizer)
        if old is None or old is self._store:
            return
        if spec_of(before) is spec_of(optimizer):
            members = {id(p) for group in optimizer.param_groups for p in group["params"]}
            self._store.take_over(old, self._device, members)
        self._leave(old)

    def _leave(self, old: LiveStates) -> None:
        if self._device is not None:
            remember(self._device, old)

    def _look_for_another_store(self) -> None:
        if self._optimizer.state is not self._store:  # as load_state_dict of torch does
            old, self._store = self._store, live(self._optimizer)
            self._store.succeed(old)
            self._leave(old)

    def bind(self, program, executable, can_run: bool) -> None:
        """Takes note of a program, which gets the state with the next run.

        Args:
            program: what translate made.
            executable: the compiled program.
            can_run: whether the program is to run here.
        """
        self._look_for_another_store()
        self._device = DeviceStates(program, executable)
        self._store.bind(self._device, can_run)

    def counter(self, spec):
        """See :meth:`LiveStates.counter`."""
        self._look_for_another_store()
        return self._store.counter(spec)

    @property
    def has_loaded(self) -> bool:
        """Whether a ``load_state_dict`` came after the last run."""
        return self._store.is_loaded or self._optimizer.state is not self._store

    def uneven(self) -> tuple | None:
        """Why the program cannot take the state that the host has, see
        :meth:`DeviceStates.uneven`; None: it can."""
        if self._optimizer.state is self._store and self._store.is_running(self._device):
            return None
        self._look_for_another_store()
        return self._store.uneven(self._device)

    def before_run(self) -> None:
        """Gives the program the newest state; what the host has is outdated from here on.

        Raises:
            poptorch.Error: A value is not of the shape of the device's.
        """
        self._look_for_another_store()
        if not self._store.is_running(self._device):
            with interrupts.deferred():
                self._store.give(self._device, groups_of(self._optimizer))

    def after_run(self) -> None:
        """Takes note of what another thread may have looked at meanwhile."""
        device = self._device
        if device is not None and not self._store.is_running(device):
            self._store.ran(device)

    def came_with_program(self) -> None:
        """Takes note that the program has states already, those of a file."""
        self._store.ran(self._device)

    def rest(self):
        """A copy of the optimizer with the states that the program does not have."""
        copied = copy.copy(self._optimizer)
        copied.state = self._store.without(self._device)
        return copied

    def let_go(self) -> None:
        """As :meth:`release`, where the garbage collector calls it. Within an operation without
        values nothing is done: the optimizer keeps the program until it is asked for a state."""
        if computes_values():
            self.release()

    def release(self) -> None:
        """Reads what the program has, and lets go of it."""
        device, self._device = self._device, None
        if device is not None:
            self._read(device)

    def bring(self) -> None:
        """Reads what the program has, which gets it again with the next run: for a change of the
        form in which it has it."""
        if self._device is not None:
            with interrupts.deferred():
                self._read(self._device)

    def _read(self, device: DeviceStates) -> None:
        self._store.release(device)
        for reference in device.previous:
            other = reference()
            if other is not None:
                other.release(device)
