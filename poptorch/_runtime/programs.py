"""The compiled programs of one executor. The next call runs the current one."""

import time
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from poptorch._device.device import Device
from poptorch._reports.device.options import report_of
from poptorch._reports.device.report import DeviceReport
from poptorch._reports.profile_report import ProfileReport
from poptorch._runtime import device_memory
from poptorch._runtime.compiled import CompiledModel
from poptorch._runtime.device_memory import CarriedOver
from poptorch._runtime.wrapped import Wrapped
from poptorch._weights import gradients
from poptorch._weights.link import WeightLink
from poptorch.errors import Error


class ProgramInfo(NamedTuple):
    """What an executor says of one of its programs.

    Attributes:
        signature: its arguments: shapes and types of tensors, other values.
        reason: why it was compiled.
        seconds: that it took to compile or load it.
    """

    signature: str
    reason: str
    seconds: float


class Programs:
    """Adds programs, and hands over what they share when a different one becomes current.

    The weights of each program follow those of the module and of all other programs
    (:class:`WeightLink`). The optimizer's state, the state of the random generator and the buffers
    of each replica belong to the current program.
    """

    def __init__(self, wrapped: Wrapped, weights: WeightLink, device: Device,
                 report: ProfileReport | None):
        self._wrapped = wrapped
        self._optimizer = wrapped.optimizer
        self._weights = weights
        self._device = device
        self._report = report
        self._carried: CarriedOver | None = None  # until the next add()
        self.current: CompiledModel | None = None
        self.all: dict[CompiledModel, ProgramInfo] = {}
        self._device_reports: WeakKeyDictionary[CompiledModel, DeviceReport] = WeakKeyDictionary()

    def require(self, where: str) -> CompiledModel:
        """The current program; without one, an Error that names the method ``where``."""
        program = self.current
        if program is None:
            raise Error(f"[{where}] Model has not been compiled or has been destroyed. "
                        f"Call it, or compile() it, first.")
        return program

    def device_report(self, program: CompiledModel) -> DeviceReport:
        """What a program costs on an IPU system; made once."""
        known = self._device_reports.get(program)
        if known is None:
            wrapped, spec = self._wrapped, program.interface.spec
            known = self._device_reports[program] = report_of(
                program.executable.ir("place"), wrapped.options, wrapped.given_options,
                samples=program.arguments.samples(),
                title=f"{type(wrapped.user_model).__name__}, {wrapped.options.model_name}",
                is_training=spec.training)
        return known

    def add(self, program: CompiledModel, begin: float, reason: str,
            restore: Callable[[], None] = lambda: None) -> None:
        """Makes a new program the current one. Where something is raised, nothing is compiled.

        ``restore`` gives it other states than the module and the optimizer have.
        """
        carried = self._carried if self.current is None else CarriedOver.of(self.current)
        try:
            self._device.check_ipus(self._ipus(program))
            if self._optimizer is not None:
                self._optimizer.compiled(program.program, program.executable, self._device.can_run)
            self._weights.join(program)
            if carried is not None:
                carried.give(program)
            restore()
            self._device.take(self._ipus(program))
            if self._report is not None:
                self._report.compiled(program.executable, self.device_report(program))
        except BaseException:
            self._give_up(carried)
            raise
        gradients.provide(program, self._wrapped.options)
        self.all[program] = ProgramInfo(program.arguments.text(), reason,
                                        time.monotonic() - begin)
        self.current, self._carried = program, None

    def select(self, program: CompiledModel) -> None:
        """Makes one of :attr:`all` the current one. If something is raised, nothing is compiled.

        Only if its device is held by another executor, all programs stay as they are.
        """
        self._device.take(self._ipus(program))
        carried = CarriedOver.of(self.current)
        try:
            if program.executable.has_memory:
                self._weights.before_run(program, is_written=True)
            else:
                self.take_memory(program)
            carried.give(program)
            if self._optimizer is not None:
                self._optimizer.select(program.program)
        except BaseException:
            self._give_up(carried)
            raise
        self.current = program

    def take_device(self, program: CompiledModel) -> None:
        """Takes the device for a program, and memory."""
        self._device.take(self._ipus(program))
        self.take_memory(program)

    def take_memory(self, program: CompiledModel) -> None:
        """Gives a program memory again, see :func:`device_memory.restore`."""
        device_memory.restore(program, lambda: self._weights.join(program),
                              lambda: self._weights.forget(program))

    def release_memory(self) -> None:
        """Gives the memory of all programs back. The host has the newest weights."""
        self._weights.forget()
        for program in self.all:
            device_memory.release(program)

    def keep_for_next(self) -> None:
        """Gives all programs up. What only the device has is kept for the next :meth:`add`."""
        self._give_up(CarriedOver.of(self.current))

    def clear(self) -> None:
        """Gives all programs up."""
        self._give_up(None)

    def _ipus(self, program: CompiledModel) -> int:
        return program.executable.ipus * self._wrapped.options.replication_factor

    def _give_up(self, carried: CarriedOver | None) -> None:
        self.current, self._carried = None, carried
        self.all.clear()
        self._weights.forget()
        if self._optimizer is not None:
            self._optimizer.forget()
