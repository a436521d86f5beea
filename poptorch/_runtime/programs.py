"""The compiled programs of one executor, of which one is the current one: that of the next call."""

import time
from collections.abc import Callable
from typing import NamedTuple

from poptorch._device.device import Device
from poptorch._optimizer.link import OptimizerLink
from poptorch._reports.profile_report import ProfileReport
from poptorch._runtime import device_memory
from poptorch._runtime.compiled import CompiledModel
from poptorch._runtime.device_memory import Left
from poptorch._weights import gradients
from poptorch._weights.link import WeightLink
from poptorch.errors import Error
from poptorch.options import Options


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
    """Adds programs, and hands over what they share when another one becomes current.

    The weights of each program follow those of the module and of all other programs
    (:class:`WeightLink`). The optimizer's state, the state of the random generator and the buffers
    of each replica belong to the current program.

    Args:
        weights: of the executor.
        optimizer: of the executor; None for inference.
        device: of the executor.
        report: what ``Options.enableProfiling`` writes; None: nothing.
        options: resolved options.

    Attributes:
        current: what a call runs; None: nothing is compiled.
        all: each program, and how it came.
    """

    def __init__(self, weights: WeightLink, optimizer: OptimizerLink | None, device: Device,
                 report: ProfileReport | None, options: Options):
        self._weights = weights
        self._optimizer = optimizer
        self._device = device
        self._report = report
        self._options = options
        self._left: Left | None = None  # from clear() to the next add()
        self.current: CompiledModel | None = None
        self.all: dict[CompiledModel, ProgramInfo] = {}

    def require(self, where: str) -> CompiledModel:
        """The current program.

        Args:
            where: the method that needs it, for the message.

        Raises:
            poptorch.Error: There is none.
        """
        program = self.current
        if program is None:
            raise Error(f"[{where}] Model has not been compiled or has been destroyed. "
                        f"Call it, or compile() it, first.")
        return program

    def add(self, program: CompiledModel, begin: float, reason: str,
            restore: Callable[[], None] = lambda: None) -> None:
        """Makes a new program the current one. Where something is raised, nothing is compiled.

        Args:
            program: the program.
            begin: when its compilation began, by ``time.monotonic``.
            reason: why it was compiled.
            restore: called once the program has the module's weights and the optimizer's states,
                to give it others.
        """
        try:
            self._hand_over(program, lambda: self._weights.join(program))
            restore()
            self._device.take()
            if self._report is not None:
                self._report.compiled(program.executable)
        except BaseException:
            self.clear()
            raise
        gradients.provide(program, self._options)
        self.all[program] = ProgramInfo(program.arguments.text(), reason,
                                        time.monotonic() - begin)
        self.current, self._left = program, None

    def select(self, program: CompiledModel) -> None:
        """Makes one of :attr:`all` the current one. Where something is raised, nothing is
        compiled.

        Args:
            program: the program, which :meth:`add` has added.
        """
        try:
            self._hand_over(program, lambda: self._bring_weights(program))
        except BaseException:
            self.clear()
            raise
        self.current = program

    def _hand_over(self, program: CompiledModel, bring_weights: Callable[[], None]) -> None:
        """Gives a program what the current one has."""
        left = self._left if self.current is None else Left.of(self.current)
        if self._optimizer is not None:
            self._optimizer.forget()
            self._optimizer.compiled(program.program, program.executable, self._device.can_run)
        bring_weights()
        if left is not None:
            left.give(program)

    def _bring_weights(self, program: CompiledModel) -> None:
        if program.executable.has_memory:
            self._weights.before_run(program, is_written=True)
        else:
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
        """Gives all programs up for one that :meth:`add` is to add: what only the device has is
        kept until then."""
        left = self._left if self.current is None else Left.of(self.current)
        self.clear()
        self._left = left

    def clear(self) -> None:
        """Gives all programs up. The optimizer's state goes to the host."""
        self.current, self._left = None, None
        self.all.clear()
        self._weights.forget()
        if self._optimizer is not None:
            self._optimizer.forget()
