"""The executor: capture -> translate -> compile -> run -> unpack."""

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from poptorch import profiling
from poptorch._base import interrupts
from poptorch._base.logging import logger
from poptorch._base.torch_private import modes_off
from poptorch._capture.process_state import one_at_a_time
from poptorch._device.device import Device
from poptorch._executor import copies
from poptorch._executor.attachment import Attachment
from poptorch._executor.inspection import Inspection
from poptorch._executor.reports import Reports
from poptorch._files.saving import Saving
from poptorch._optimizer.link import OptimizerLink
from poptorch._reports.profile_report import ProfileReport
from poptorch._reports.progress import StepProgress
from poptorch._runtime import hooks, settings
from poptorch._runtime.build import Source, build
from poptorch._runtime.compiled import CompiledModel
from poptorch._runtime.device_memory import Left
from poptorch._runtime.in_flight import Ended, InFlight
from poptorch._runtime.modes import TrainingModes
from poptorch._translate import StepSpec
from poptorch._weights import gradients, grouping
from poptorch._weights.link import WeightLink, check_kept
from poptorch._weights.methods import WeightCopies
from poptorch.errors import Error
from poptorch.options._options import Options, checked_options


class PoplarExecutor(WeightCopies, Saving, Inspection, Reports, Attachment, grouping.Grouped):
    """A wrapped module: what :func:`poptorch.trainingModel` and ``inferenceModel`` return.

    Call it like the module. The first call compiles; attributes that it does not have are the
    module's, whether they are read or set. Those set under a name that begins with an underscore
    are always its own.

    Args:
        model: the module to compile.
        options: how to compile and run.
        training: whether a call trains.
        poptorch_version: of the package that wraps.
        optimizer: for training.
        user_model: where attributes are looked up, if not in ``model``.

    Raises:
        TypeError: ``model`` is no module, or ``options`` are no :class:`poptorch.Options`.

    Example:
        >>> import poptorch, torch
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
        >>> isinstance(model, poptorch.PoplarExecutor), model(torch.ones(3, 4)).shape
        (True, torch.Size([3, 2]))
    """

    def __init__(self, model: torch.nn.Module, options: Options, training: bool,
                 poptorch_version: str, optimizer: torch.optim.Optimizer | None = None,
                 user_model: torch.nn.Module | None = None):
        where = "trainingModel" if training else "inferenceModel"
        options = checked_options(options, where)
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"[{where}] model must be a torch.nn.Module, got "
                            f"{type(model).__name__}. Wrap an object of the module's class.")
        self._model = model
        self._user_model = model if user_model is None else user_model
        self._training = training
        self._given_options = options
        self._options = settings.resolved(options, training)
        self._device = Device(self._options)
        self._report = ProfileReport.of(self._options)
        self._poptorch_version = poptorch_version
        self._optimizer = OptimizerLink(
            self._user_model, optimizer,
            self._options.relax_optimizer_attributes_checks) if training else None
        self._decide_options()
        self._compiled: CompiledModel | None = None
        # Of a model that is compiled again, until it is.
        self._left: Left | None = None
        self._in_flight = InFlight()
        self._modes = TrainingModes(model)
        self._weights = WeightLink(self._user_model, training)
        self._args_parser = None  # other programs put theirs here before the first call
        grouping.register(self)
        options._freeze()

    # -- the data path -------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model; compiles it first if this is the first call.

        Args:
            args: as the module's ``forward`` takes them; the first dimension of each tensor is
                ``device_iterations * gradient_accumulation * replication_factor *
                micro-batch``.
            kwargs: likewise.

        Returns:
            What ``forward`` returns, with the results that the output mode keeps.

        Raises:
            poptorch.Error: An argument differs from the compiled ones; or the model cannot be
                compiled; or torch traces or transforms what the caller does.
            AssertionError: The options say that the model is compiled and never run.
        """
        self._device.check_can_run()
        is_plain = modes_off.is_plain_for("executor")
        while True:
            try:
                return self._called(is_plain, args, kwargs)
            except Ended:
                time.sleep(0)  # whoever ends it goes on

    def _called(self, is_plain: bool, args: tuple, kwargs: dict):
        # One object for the whole call: another thread may destroy() or compile until it begins.
        compiled = self._compiled
        if compiled is None:
            compiled = self._compiled_for(args, kwargs)
        if not self._device.is_held:
            self._attach()
        tensors = compiled.arguments.match(args, kwargs)
        caller = self._in_flight.begin()
        try:
            if self._compiled is not compiled or not self._device.is_held:
                raise Ended
            if self._optimizer is None or not self._optimizer.has_outgrown():
                if is_plain:
                    return self._run_with_weights(compiled, tensors)
                with modes_off.plain_torch():
                    return self._run_with_weights(compiled, tensors)
        finally:
            self._in_flight.leave(caller)
        self._compile_again(compiled, args, kwargs)
        raise Ended

    def _run_with_weights(self, compiled: CompiledModel, tensors: list[torch.Tensor]):
        """A run with the newest weights and states, which it changes."""
        is_written = compiled.check()
        if self._optimizer is not None and self._optimizer.state.has_loaded:
            self._weights.bring()
        self._weights.check_arguments(compiled, tensors)
        self._weights.before_run(compiled, is_written)
        if self._optimizer is not None:
            self._optimizer.refresh(compiled.call)
        # Before it, as it may be ended after its first updates, and what ends it may also come
        # right after it; and after it, as another thread may have read the values meanwhile.
        self._weights.note_run(compiled)
        try:
            result = self._run(compiled, tensors)
        finally:
            replaced = self._weights.note_run(compiled, is_end=True)
            if self._optimizer is not None:
                self._optimizer.state.after_run()
        check_kept(replaced)
        return result

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
        modes_off.is_plain_for("compile")
        self._compiled_for(args, kwargs)

    def _compiled_for(self, args: tuple, kwargs: dict) -> CompiledModel:
        return self._device.when_free(lambda: self._compiled_once(args, kwargs))

    @interrupts.whole
    def _compiled_once(self, args: tuple, kwargs: dict) -> CompiledModel:
        with one_at_a_time:  # whoever waited here finds it compiled
            return self._compiled or self._compile(args, kwargs)

    @interrupts.whole
    def _compile_again(self, outgrown: CompiledModel, args: tuple, kwargs: dict) -> None:
        """Compiles for the parameters and groups that the optimizer has now."""
        with self._in_flight.end("call"), one_at_a_time:
            if self._compiled is not outgrown:  # another thread was faster
                return
            self.copyWeightsToHostIfNeeded()
            self._left = Left.of(outgrown)
            self._forget()
            self._compile(args, kwargs)

    def _compile(self, args: tuple, kwargs: dict) -> CompiledModel:
        begin = time.monotonic()
        hooks.before_compile()
        self._options._Popart.check_known()
        self._weights.bring()
        self._decide_options()
        options = self._options
        source = Source(self._model, self._user_model, options, self._step_spec(), self._modes,
                        self._optimizer, self._args_parser)
        with self._device.compiling():
            with self._recorded(), StepProgress(
                    options.model_name, options.show_compilation_progress_bar) as progress:
                interface, executable = build(source, args, kwargs, progress)
            with modes_off.plain_torch():
                compiled = CompiledModel.of(interface, executable, self._model, options,
                                            self._modes)
                compiled.guard.modes.warn()
                self._publish(compiled, begin, partial(self._left.give, compiled)
                              if self._left is not None else lambda: None)
        logger.debug("compiled %s: %s", options.model_name, executable.step_times())
        hooks.after_compile()
        return compiled

    def _step_spec(self) -> StepSpec:
        return settings.step_spec(self._options, self._training, grouping.weight_groups(self))

    def _publish(self, compiled: CompiledModel, begin: float,
                 restore: Callable[[], None] = lambda: None) -> None:
        """Makes a program this executor's. Where something is raised, nothing is compiled.

        Args:
            compiled: the program.
            begin: when its compilation began, by ``time.monotonic``.
            restore: called once the program has the module's weights and the optimizer's states,
                to give it others.
        """
        try:
            if self._optimizer is not None:
                self._optimizer.compiled(compiled.program, compiled.executable,
                                         self._device.can_run)
            self._weights.compiled(compiled, self)
            restore()
            self._device.take()
            if self._report is not None:
                self._report.compiled(compiled.executable)
        except BaseException:
            self._forget()
            raise
        gradients.provide(compiled, self._options)
        self._compile_seconds = time.monotonic() - begin
        self._compiled, self._left = compiled, None

    def _run(self, compiled: CompiledModel, tensors: list[torch.Tensor]):
        """One run, recorded if a profile is on."""
        if self._report is None and not profiling.is_recording():
            return compiled.call.run(tensors)
        with self._recorded():
            begin = time.monotonic_ns()
            result = compiled.call.run(tensors)
            category = f"run {self._options.model_name}"
            profiling.add_span("run", category, begin, time.monotonic_ns())
            for number, (start, end) in enumerate(compiled.executable.timestamps()):
                profiling.add_span(f"iteration {number}", category, start, end)
        return result

    def _recorded(self):
        return contextlib.nullcontext() if self._report is None else self._report.recorded()

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Uses another optimizer, or the same one with other settings, from the next call on.

        Args:
            optimizer: of the same kind as the compiled one; learning rates and other numbers
                may differ.

        Raises:
            ValueError: It would change what is compiled in.
            poptorch.Error: The model was not wrapped for training.

        Example:
            >>> import poptorch, torch
            >>> class Scale(torch.nn.Module):
            ...     def __init__(self):
            ...         super().__init__()
            ...         self.w = torch.nn.Parameter(torch.ones(()))
            ...     def forward(self, x):
            ...         return poptorch.identity_loss(self.w * x, "sum")
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> net = Scale()
            >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
            >>> model = poptorch.trainingModel(net, opts, optimizer)
            >>> loss = model(torch.ones(3))  # w is 1 - 0.5 * 3
            >>> optimizer.param_groups[0]["lr"] = 1.0
            >>> model.setOptimizer(optimizer)
            >>> loss = model(torch.ones(3))
            >>> net.w.item()
            -3.5
        """
        if self._optimizer is None:
            raise Error("[setOptimizer] this model was wrapped for inference, which has no "
                        "optimizer. Use poptorch.trainingModel.")
        self._optimizer.set(optimizer)
        if self._compiled is None:
            self._decide_options()

    def _decide_options(self) -> None:
        """Chooses anew what the user leaves open and the optimizer decides."""
        if self._optimizer is not None:
            settings.decide_mean_strategy(self._options, self._given_options, self._optimizer)

    def _gradients(self) -> dict:
        return self._compiled_model("gradients").call.gradients()

    def train(self, mode: bool = True) -> "PoplarExecutor":
        """Puts the module into training mode: what the next compilation uses.

        A module that changes its mode after it was wrapped, other than by this method and
        :meth:`eval`, is compiled as it was when it was wrapped, with a warning. A program that is
        compiled stays as it is until :meth:`destroy`.

        Args:
            mode: True for training mode, False for evaluation mode.

        Returns:
            This executor.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Dropout(0.5), opts)
            >>> model.train().training, model.model.training
            (False, True)
        """
        self._model.train(mode)
        self._modes.note()
        return self

    def eval(self) -> "PoplarExecutor":
        """Puts the module into evaluation mode, see :meth:`train`.

        Returns:
            This executor.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Dropout(0.5), opts)
            >>> model.eval()(torch.ones(2))
            tensor([1., 1.])
        """
        return self.train(False)

    # -- life time -----------------------------------------------------------------------------

    @interrupts.whole
    def destroy(self) -> None:
        """Reads the weights back and frees the device. A later call compiles again.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> _ = model(torch.ones(3, 4))
            >>> model.destroy()
            >>> model.isCompiled()
            False
        """
        compiled = self._compiled
        # Apart from the lock: the handler of a signal in a call may wait for that.
        ended = self._in_flight.end("destroy") if compiled else contextlib.nullcontext()
        with ended, one_at_a_time:
            self._left = None
            if self._compiled is not compiled:  # destroyed, or compiled, by another thread since
                return
            if self._weights.is_newest:
                self._weights.to_host()
            if self._report is not None:
                self._report.write_trace()
            self._forget()
            self._device.release()
            self._weights.unwatch()

    def _forget(self) -> None:
        self._compiled = None
        self._weights.forget()
        if self._optimizer is not None:
            self._optimizer.forget()

    def _compiled_model(self, where: str) -> CompiledModel:
        """The compiled model.

        Args:
            where: the method that needs it, for the message.

        Raises:
            poptorch.Error: There is none.
        """
        compiled = self._compiled
        if compiled is None:
            raise Error(f"[{where}] Model has not been compiled or has been destroyed. "
                        f"Call it, or compile() it, first.")
        return compiled

    # -- attributes of the module ---------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        user_model = self.__dict__.get("_user_model")
        if user_model is None or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(user_model, name)

    def __setattr__(self, name: str, value: Any) -> None:
        user_model = self.__dict__.get("_user_model")
        is_own = (name.startswith("_") or user_model is None or name in self.__dict__
                  or hasattr(type(self), name))
        if is_own or not hasattr(user_model, name):
            super().__setattr__(name, value)
        else:
            setattr(user_model, name, value)

    def __reduce__(self):
        optimizer = None if self._optimizer is None else self._optimizer.optimizer
        user_model = None if self._user_model is self._model else self._user_model
        return copies.wrapped_again, (type(self), {
            "model": self._model, "options": self._given_options.clone(),
            "training": self._training, "poptorch_version": self._poptorch_version,
            "optimizer": optimizer, "user_model": user_model}, grouping.declared(self),
            self._modes.by_path())

    def __repr__(self) -> str:
        kind = "training" if self._training else "inference"
        return f"PoplarExecutor({kind}, {self._user_model!r})"
