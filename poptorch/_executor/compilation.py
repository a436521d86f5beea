"""Which program a call runs: compiles one, and another one where that is outdated."""

import time
from dataclasses import dataclass
from typing import Any
from weakref import WeakMethod

from poptorch._base.logging import logger
from poptorch._base.torch_private.modes_off import is_plain_for, plain_torch
from poptorch._device.device import Device
from poptorch._reports.profile_report import ProfileReport, recorded
from poptorch._reports.progress import StepProgress
from poptorch._runtime import hooks
from poptorch._runtime.compiled import CompiledModel
from poptorch._runtime.lifecycle import Lifecycle
from poptorch._runtime.programs import Programs
from poptorch._runtime.wrapped import Wrapped
from poptorch._weights.link import WeightLink


@dataclass(frozen=True)
class Compilation:
    """Compiles the first program of an executor, and those that replace it."""

    wrapped: Wrapped
    programs: Programs
    weights: WeightLink
    device: Device
    lifecycle: Lifecycle
    report: ProfileReport | None
    build: WeakMethod  # of PoplarExecutor._build

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles the model for arguments like these, without running it.

        Nothing is done when it is compiled already.

        Args:
            args: as a call takes them; of tensors only shape and dtype matter.
            kwargs: likewise.

        Raises:
            poptorch.Error: The model cannot be compiled. The executor can still be used.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.compile(torch.ones(3, 4))
            >>> model.isCompiled()
            True
        """
        is_plain_for("compile")
        self.ensure_compiled(args, kwargs)

    def ensure_compiled(self, args: tuple, kwargs: dict) -> CompiledModel:
        """The current program; compiles the first one."""
        return self.lifecycle.alone(
            "compile", lambda: self.programs.current or self._compile_locked(args, kwargs),
            waits_for_calls=False)

    def ensure_current(self, args: tuple, kwargs: dict) -> CompiledModel:
        """The program that a call with these arguments runs."""
        program = self.ensure_compiled(args, kwargs)
        while self.is_outdated():
            self.replace(program, args, kwargs)
            program = self.ensure_compiled(args, kwargs)
        return program

    def is_outdated(self) -> bool:
        """Whether a call needs another program than the current one."""
        return self.wrapped.optimizer is not None and \
            self.wrapped.optimizer.recompile_reason() is not None

    def replace(self, outdated: CompiledModel, args: tuple, kwargs: dict) -> None:
        """Makes another program the current one, unless another thread has done so."""
        def replace() -> None:
            if self.programs.current is outdated:
                self.weights.pull_to_host()
                self.programs.keep_for_next()
                self._compile_locked(args, kwargs)

        self.lifecycle.alone("call", replace)

    def _compile_locked(self, args: tuple, kwargs: dict) -> CompiledModel:
        begin, options = time.monotonic(), self.wrapped.options
        hooks.before_compile()
        options._Popart.check_known()
        self.weights.pull_to_host()
        self.wrapped.decide_options()
        with self.device.compiling():
            with recorded(self.report), StepProgress(
                    options.model_name, options.show_compilation_progress_bar) as progress:
                program = self.build()(options, args, kwargs, progress)
            with plain_torch():
                program.guard.modes.warn()
                self.programs.add(program, begin)
        logger.debug("compiled %s: %s", options.model_name, program.executable.step_times())
        hooks.after_compile()
        return program
