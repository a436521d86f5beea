"""The executor: capture -> translate -> compile -> run -> unpack."""

import contextlib
import time
from types import SimpleNamespace

import torch

from poptorch import _C, profiling
from poptorch._capture import capture
from poptorch._capture.process_state import one_at_a_time
from poptorch._executor import (
    grouping,
    hooks,
    instrument,
    random_state,
    settings,
    weights,
)
from poptorch._executor.arguments import Arguments
from poptorch._executor.attachment import Attachment
from poptorch._executor.call import Call
from poptorch._executor.device import Device
from poptorch._executor.guard import ModuleGuard
from poptorch._executor.hyper import OptimizerLink
from poptorch._executor.inspection import Inspection
from poptorch._executor.interface import Interface
from poptorch._executor.modes import TrainingModes
from poptorch._executor.profile_report import ProfileReport
from poptorch._executor.progress import StepProgress
from poptorch._executor.reports import Reports
from poptorch._executor.saving import Saving
from poptorch._executor.weight_copies import WeightCopies
from poptorch._logging import logger
from poptorch._translate import translate
from poptorch.errors import Error
from poptorch.options import Options, checked_options


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
                 poptorch_version: str, optimizer=None, user_model=None):
        where = "trainingModel" if training else "inferenceModel"
        options = checked_options(options, where)
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"[{where}] model must be a torch.nn.Module, got "
                            f"{type(model).__name__}. Wrap an object of the module's class.")
        self._model = model
        self._user_model = model if user_model is None else user_model
        self._training = training
        self._options = settings.resolved(options, self._user_model, training)
        self._device = Device(self._options)
        self._report = ProfileReport.of(self._options)
        self._poptorch_version = poptorch_version
        self._optimizer = OptimizerLink(
            self._user_model, optimizer,
            self._options.relax_optimizer_attributes_checks) if training else None
        self._forget()
        self._seen_version = -1
        self._modes = TrainingModes(model)
        # Other programs put a parser of theirs here before the first call.
        self._args_parser = None
        if training:
            instrument.instrument(self._user_model)
        grouping.register(self)

    # -- the data path -------------------------------------------------------------------------

    def __call__(self, *args, **kwargs):
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
                compiled.
            AssertionError: The options say that the model is compiled and never run.
        """
        self._device.check_can_run()
        if self._call is None:
            self.compile(*args, **kwargs)
        tensors = self._arguments.match(args, kwargs)
        self._guard.check()
        self._sync_before_run()
        if self._optimizer is not None:
            self._optimizer.refresh(self._call)
        result = self._run(tensors)
        if self._program.updated:
            self._weights().written_by(self, self._executable, self._program)
        return result

    def compile(self, *args, **kwargs) -> None:
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
        with one_at_a_time:  # whoever waited here finds it compiled
            if self._executable is None:
                self._compile(args, kwargs)

    def _compile(self, args: tuple, kwargs: dict) -> None:
        begin = time.monotonic()
        hooks.before_compile()
        self._options._Popart.check_known()
        self._weights().bring_to_host()
        self._device.before_compile()
        options = self._options
        spec = settings.step_spec(self)
        with self._recorded(), StepProgress(
                options.model_name, options.show_compilation_progress_bar) as progress:
            progress("capture")
            arguments = Arguments(self._model, args, kwargs, spec, self._args_parser)
            with self._modes.applied():
                captured = capture(self._model, arguments.micro_args, arguments.micro_kwargs,
                                   training=self._training,
                                   location_excludes=options.source_location_excludes,
                                   module_paths=options.module_namescope_enabled,
                                   grouped=frozenset(path for path, _ in spec.weight_groups))
            settings.check_buffers(options, self._user_model, captured)
            progress("translate")
            program = translate(captured, spec, self._optimizer)
            executable = _C.compile(program.module, settings.compile_options(options), progress)
        self._device.after_compile()
        if self._report is not None:
            self._report.compiled(executable)
        try:
            self._install(Interface(arguments, captured.out_spec, program, spec), executable)
        except BaseException:
            self._forget()
            raise
        self._compile_seconds = time.monotonic() - begin
        logger.debug("compiled %s: %s", options.model_name, executable.step_times())
        hooks.after_compile()

    def _install(self, interface: Interface, executable) -> None:
        """Makes the executor ready to run a program, with weights and states at their start."""
        program, arguments = interface.program, interface.arguments
        if self._training and not instrument.is_instrumented(self._user_model):
            instrument.instrument(self._user_model)  # destroy() ended that
        self._interface, self._arguments, self._program = interface, arguments, program
        self._executable = executable
        self.rng_state = [random_state.seed_of(self._options.random_seed),
                          *[0] * executable.replicas]
        if self._optimizer is not None:
            self._optimizer.compiled(program, executable, self._device.can_run)
        self._guard = ModuleGuard(self._model, program.states.values(), self._training)
        call = Call(executable, program, interface.outputs, self._options, interface.spec,
                    arguments)
        weights.spread(program)
        self.copyWeightsToDevice()
        self._call = call  # last: with it, other threads may run

    def _run(self, tensors):
        """One run, recorded if anybody wants to know."""
        if self._report is None and not profiling.is_recording():
            return self._call.run(tensors)
        with self._recorded():
            begin = time.monotonic_ns()
            result = self._call.run(tensors)
            category = f"run {self._options.model_name}"
            profiling.add_span("run", category, begin, time.monotonic_ns())
            for number, (start, end) in enumerate(self._executable.timestamps()):
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

    def _gradients(self) -> dict:
        self._check_compiled()
        return self._call.gradients()

    def train(self, mode: bool = True) -> "PoplarExecutor":
        """Puts the module into training mode: what the next compilation sees.

        A module that changes its mode after it was wrapped, other than by this method and
        :meth:`eval`, is compiled as it was when it was wrapped.

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

    def isCompiled(self) -> bool:
        """Whether the model has been compiled (and not destroyed).

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.isCompiled()
            False
        """
        return self._executable is not None

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
        if self._executable is not None and self._weights().is_newer_on(self):
            self.copyWeightsToHost()
        if self._report is not None:
            self._report.write_trace()
        self._forget()
        self._device.release()
        if self._training:
            instrument.remove(self._user_model)

    def _forget(self) -> None:
        self._executable = self._interface = self._arguments = self._program = self._call = None
        if self._optimizer is not None:
            self._optimizer.forget()

    def _check_compiled(self) -> None:
        if self._executable is None:
            raise Error("Model has not been compiled or has been destroyed. "
                        "Call it, or compile() it, first.")

    # -- inspection ----------------------------------------------------------------------------

    @property
    def model(self) -> torch.nn.Module:
        """The wrapped module.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.model
            Linear(in_features=4, out_features=2, bias=True)
        """
        return self._user_model

    @property
    def options(self) -> Options:
        """The options in use, frozen. What the user left open is decided here: the output mode,
        the model's name, and for training the mean reduction strategy (``Running`` if a trained
        parameter is of half precision when the module is wrapped, else ``Post``).

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> opts.output_mode.name, model.options.output_mode.name
            ('Default', 'All')
        """
        return self._options

    @property
    def training(self) -> bool:
        """Whether a call trains.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.training
            False
        """
        return self._training

    @property
    def _executable_inputs(self):
        """Tensors like those that the model is compiled for, without values; None before."""
        if self._arguments is None:
            return None
        return SimpleNamespace(args=tuple(torch.zeros((), dtype=leaf.dtype).expand(leaf.shape)
                                          for leaf in self._arguments.tensor_leaves()))

    def __getattr__(self, name: str):
        user_model = self.__dict__.get("_user_model")
        if user_model is None or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(user_model, name)

    def __setattr__(self, name: str, value):
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
        return _wrapped_again, (type(self), {
            "model": self._model, "options": self._options.clone(), "training": self._training,
            "poptorch_version": self._poptorch_version, "optimizer": optimizer,
            "user_model": user_model}, grouping.declared(self))

    def __repr__(self) -> str:
        kind = "training" if self._training else "inference"
        return f"PoplarExecutor({kind}, {self._user_model!r})"


def _wrapped_again(cls: type, arguments: dict, groupings: dict) -> PoplarExecutor:
    """An executor that was copied or pickled: wrapped in the same way, not yet compiled."""
    executor = cls(**arguments)
    grouping.declare(executor, groupings)
    return executor
