"""Which program a call runs: the current one, an earlier one, or one that is compiled now."""

import time
from dataclasses import dataclass
from typing import Any
from weakref import WeakMethod

from poptorch._base.logging import logger
from poptorch._base.torch_private.modes_off import is_plain_for, plain_torch
from poptorch._device.device import Device
from poptorch._device.memory_check import check_tile_memory
from poptorch._executor.tracebacks import shortened
from poptorch._guards.guard import Change, Kind, Outdated
from poptorch._reports.profile_report import ProfileReport, recorded
from poptorch._reports.progress import StepProgress
from poptorch._runtime import hooks
from poptorch._runtime.argument_memory import MISMATCH
from poptorch._runtime.arguments import other_value
from poptorch._runtime.compiled import CompiledModel
from poptorch._runtime.lifecycle import Lifecycle
from poptorch._runtime.programs import Programs
from poptorch._runtime.wrapped import Wrapped
from poptorch._weights.link import WeightLink
from poptorch.errors import Error


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
            kwargs: as a call takes them.

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
        try:
            self.ensure_compiled(args, kwargs)
        except Exception as error:
            raise shortened(error)

    def zeros(self, args: tuple, kwargs: dict) -> Any:
        """What a call with these arguments returns, with zeros; compiles the model first."""
        is_plain_for("executor")
        try:
            return self.ensure_current(args, kwargs).call.zeros()
        except Exception as error:
            raise shortened(error)

    def ensure_compiled(self, args: tuple, kwargs: dict) -> CompiledModel:
        """The current program; compiles the first one."""
        return self.lifecycle.alone(
            "compile",
            lambda: self.programs.current or self._compile_locked(args, kwargs, "the first call"),
            waits_for_calls=False)

    def ensure_current(self, args: tuple, kwargs: dict) -> CompiledModel:
        """The program that a call with these arguments runs."""
        while True:
            program = self.ensure_compiled(args, kwargs)
            try:
                if not self.is_outdated():
                    program.match(args, kwargs)
                    program.guards.check()
                    return program
                change = None
            except (Error, Outdated) as found:
                change = change_of(found)
            self.replace(program, change, args, kwargs)

    def is_outdated(self) -> bool:
        """Whether the optimizer needs another program than the current one."""
        return not self._suits_optimizer(None)

    def _suits_optimizer(self, program: CompiledModel | None) -> bool:
        optimizer = self.wrapped.optimizer
        return optimizer is None or \
            optimizer.recompile_reason(program and program.program) is None

    def replace(self, outdated: CompiledModel, change: Change | None, args: tuple,
                kwargs: dict) -> None:
        """Makes another program the current one, unless another thread has done so.

        An Error if the options forbid it. ``change`` is the guard of ``outdated`` that does not
        hold; None: the optimizer needs another program.
        """
        if change is not None:
            self._check_allowed(change)
        self.lifecycle.alone("call", lambda: self._replace(outdated, change, args, kwargs))

    def _check_allowed(self, change: Change) -> None:
        options = self.wrapped.options
        if change.kind is Kind.ARGUMENT:
            if not options.recompilation_shapes:
                raise change.error or other_value(*change.parts)
        elif not options.recompilation_values:
            raise Error(f"[call] {change.text} after the model was compiled, and "
                        f"Options.recompilation(values=False) forbids to compile it again. Set it "
                        f"back, or leave values=False out.")

    def _replace(self, outdated: CompiledModel, change: Change | None, args: tuple,
                 kwargs: dict) -> None:
        programs = self.programs
        if programs.current is not outdated:  # another thread was faster
            return
        if change is None or change.kind is Kind.TENSOR:  # no program from before can run
            self.weights.pull_to_host()
            programs.keep_for_next()
            self._compile_locked(args, kwargs, change.text if change else
                                 self.wrapped.optimizer.recompile_reason() or "")
            return
        fitting = next((one for one in programs.all if one.fits(args, kwargs)
                        and self._suits_optimizer(one)), None)
        if fitting is not None:
            with plain_torch():
                programs.select(fitting)
        elif self._is_below_limit(change):
            # An argument that does not fit its own program is an error, not a change.
            self._compile_locked(args, kwargs, change.text).match(args, kwargs)

    def _is_below_limit(self, change: Change) -> bool:
        """Whether another program may be added.

        An Error if not, and what changed is certainly part of a program.
        """
        programs, limit = self.programs.all, self.wrapped.options.recompilation_limit
        if len(programs) < limit:
            return True
        if change.kind is Kind.POSSIBLE:
            for program in programs:
                program.guards.stop_watching(change.source)
            logger.warning(
                "[call] %s. The model has been compiled %d times, so poptorch no longer watches "
                "this value, which forward may not read at all. If it does, pass it as a tensor, "
                "or raise the limit with Options.recompilation(limit=...).", change.text, limit)
            return False
        reasons = "".join(f"\n  {number}: {added.reason}"
                          for number, added in enumerate(programs.values(), 1))
        raise Error(
            f"[call] the model has {len(programs)} programs, as many as "
            f"Options.recompilation(limit={limit}) allows, and needs one more: {change.text}. "
            f"Pass what changes as a tensor, or raise the limit. What each was compiled for:"
            f"{reasons}")

    def _compile_locked(self, args: tuple, kwargs: dict, reason: str) -> CompiledModel:
        begin, options = time.monotonic(), self.wrapped.options
        hooks.before_compile()
        options._Popart.check_known()
        self.weights.pull_to_host()
        self.wrapped.decide_options()
        # A program that can still run needs the device.
        with self.device.compiling(is_kept=self.programs.current is not None):
            with recorded(self.report), StepProgress(options) as progress:
                program = self.build()(options, args, kwargs, progress, self.device.placed)
            check_tile_memory(program.executable, options)
            with plain_torch():
                if not self.wrapped.training:
                    program.modes.warn_of_dropout()
                program.modes.warn()
                self.programs.add(program, begin, reason)
        if (count := len(self.programs.all)) > 1:
            logger.info("recompiled %s (%d of %d): %s", type(self.wrapped.user_model).__name__,
                        count, options.recompilation_limit, reason)
        logger.debug("compiled %s: %s", options.model_name, program.executable.step_times())
        hooks.after_compile()
        return program


def change_of(found: Error | Outdated) -> Change:
    """What changed, of an argument that does not fit or a guard that does not hold.

    Raises the Error again if no program takes such an argument.
    """
    if isinstance(found, Outdated):
        return found.change
    if found.type != MISMATCH:
        raise found
    what = found.message.partition("] ")[2].partition(". ")[0]
    return Change(what, Kind.ARGUMENT, error=found)
