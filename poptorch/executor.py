"""The executor: capture -> translate -> compile -> run -> unpack."""

import contextlib
import time
from types import SimpleNamespace

import torch

from poptorch import _C, profiling
from poptorch._capture import capture
from poptorch._executor import (
    grouping,
    hooks,
    instrument,
    partition,
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
from poptorch._executor.saving import Saving
from poptorch._logging import logger
from poptorch._translate import translate
from poptorch.errors import Error
from poptorch.options import Options


class PoplarExecutor(Saving, Inspection, Attachment, grouping.Grouped):
    """A wrapped module: what :func:`poptorch.trainingModel` and ``inferenceModel`` return.

    Call it like the module. The first call compiles; attributes that it does not have are the
    module's.

    Args:
        model: the module to compile.
        options: how to compile and run.
        training: whether a call trains.
        poptorch_version: of the package that wraps.
        optimizer: for training.
        user_model: where attributes are looked up, if not in ``model``.
    """

    def __init__(self, model: torch.nn.Module, options: Options, training: bool,
                 poptorch_version: str, optimizer=None, user_model=None):
        if not isinstance(options, Options):
            raise TypeError(f"[{'training' if training else 'inference'}Model] options must be a "
                            f"poptorch.Options, got {type(options).__name__}.")
        self._model = model
        self._user_model = model if user_model is None else user_model
        self._training = training
        self._options = settings.resolved(options, training)
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
        if self._executable is None:
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

        Raises:
            poptorch.Error: The model cannot be compiled. The executor can still be used.
        """
        if self._executable is not None:
            return
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
        self._install(Interface(arguments, captured.out_spec, program, spec), executable)
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
            self._optimizer.compiled(program, executable)
        self._guard = ModuleGuard(self._model, program.states.values(), self._training)
        self._call = Call(executable, program, interface.outputs, self._options, interface.spec,
                          arguments)
        weights.spread(program)
        self.copyWeightsToDevice()

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

    # -- weights -------------------------------------------------------------------------------

    def _weights(self) -> weights.ModuleWeights:
        return weights.ModuleWeights.of(self._user_model)

    def _sync_before_run(self) -> None:
        shared = self._weights()
        if shared.is_newer_elsewhere(self):
            shared.bring_to_host()
        if self._seen_version != shared.version:
            self.copyWeightsToDevice()

    def copyWeightsToDevice(self) -> None:
        """Copies the module's parameters and buffers to the device. Done by the first call.

        What the host writes to them later is seen by the device after the next call of this. What
        another thread writes to them *meanwhile* may be lost.

        Raises:
            poptorch.Error: The model is not compiled.
        """
        self._check_compiled()
        self._guard.check()
        weights.upload(self._executable, self._program)
        self._seen_version = self._weights().version

    def copyWeightsToHost(self) -> None:
        """Copies the trained parameters and buffers from the device into the module.

        Raises:
            poptorch.Error: The model is not compiled.
        """
        self._check_compiled()
        shared = self._weights()
        shared.renewed()
        self._seen_version = shared.version
        weights.download(self._executable, self._program)

    def copyNamedBuffersToDevice(self) -> None:
        """Copies the buffers that ``Options.updatableNamedBuffers`` names to the device.

        Raises:
            poptorch.Error: The options name none, or the model is not compiled.
        """
        self._check_compiled()
        names = self._options.updatable_named_buffers
        if not names:
            raise Error("[copyNamedBuffersToDevice] the options name no buffers. Call "
                        "options.updatableNamedBuffers([...]) before the model is wrapped.")
        weights.upload(self._executable, self._program, names)

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Copies weights to the module if the device has newer ones.

        Returns:
            True when they were copied, False when the module was up to date.
        """
        return self._weights().bring_to_host()

    def state_dict(self, *args, **kwargs):
        """The module's ``state_dict``, with the trained values."""
        self.copyWeightsToHostIfNeeded()
        return self._user_model.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict, strict: bool = True):
        """Loads values into the module, and to the device if the model is compiled.

        Args:
            state_dict: values by name, as from :meth:`state_dict`.
            strict: whether the names must be exactly the module's.

        Returns:
            A named tuple with ``missing_keys`` and ``unexpected_keys``.
        """
        self.copyWeightsToHostIfNeeded()
        result = self._user_model.load_state_dict(state_dict, strict)
        self._weights().renewed()
        return result

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Uses another optimizer, or the same one with other settings, from the next call on.

        Args:
            optimizer: of the same kind as the compiled one; learning rates and other numbers
                may differ.

        Raises:
            ValueError: It would change what is compiled in.
            poptorch.Error: The model was not wrapped for training.
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
        """
        self._model.train(mode)
        self._modes.note()
        return self

    def eval(self) -> "PoplarExecutor":
        """Puts the module into evaluation mode, see :meth:`train`."""
        return self.train(False)

    # -- life time -----------------------------------------------------------------------------

    def isCompiled(self) -> bool:
        """Whether the model has been compiled (and not destroyed)."""
        return self._executable is not None

    def destroy(self) -> None:
        """Reads the weights back and frees the device. A later call compiles again."""
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
        """The wrapped module."""
        return self._user_model

    @property
    def options(self) -> Options:
        """The options in use, with defaults resolved."""
        return self._options

    @property
    def training(self) -> bool:
        """Whether a call trains."""
        return self._training

    @property
    def _executable_inputs(self):
        """Tensors like those that the model is compiled for, without values; None before."""
        if self._arguments is None:
            return None
        return SimpleNamespace(args=tuple(torch.zeros((), dtype=leaf.dtype).expand(leaf.shape)
                                          for leaf in self._arguments.tensor_leaves()))

    def ir(self, step: str = "plan") -> str:
        """The program's text after a step.

        Args:
            step: ``"translate"``, ``"rewrite"``, ``"place"``, ``"schedule"`` or ``"plan"``.

        Raises:
            poptorch.Error: The model is not compiled, or there is no such step.
        """
        self._check_compiled()
        return self._executable.ir(step)

    def memory_report(self) -> dict:
        """Peak bytes on the device by category.

        Returns:
            For ``parameters``, ``buffers``, ``optimizer_state`` and ``constants`` (with what is
            prepared once), the bytes that they hold all the time; for ``activations`` of the
            forward pass, ``gradients`` of the backward pass, ``scratch`` (within one op, or the
            update) and ``streams`` (arguments), those alive when most are; ``arena``, the block
            of memory that holds all of it, with the gaps.

        Raises:
            poptorch.Error: The model is not compiled.
        """
        self._check_compiled()
        return self._executable.memory_report()

    def partition_summary(self) -> None:
        """Prints a table of what runs where: a line for each stage.

        It has the stage's number and IPU, its blocks and modules, the number and bytes of its
        parameters, and their share of all parameters; in phased execution also the phase.

        Raises:
            poptorch.Error: The model is not compiled.

        Example:
            >>> import poptorch, torch
            >>> net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 2))
            >>> _ = poptorch.BeginBlock(net[0], "wide", ipu_id=0)
            >>> _ = poptorch.BeginBlock(net[1], "narrow", ipu_id=1)
            >>> opts = poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution())
            >>> _ = opts.showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(net, opts)
            >>> model.compile(torch.ones(1, 4))
            >>> model.partition_summary()
            stage  IPU  blocks  modules  parameters  bytes  share
                0    0  wide    0                30    120  68.2%
                1    1  narrow  1                14     56  31.8%
        """
        self._check_compiled()
        print(partition.summary(self._executable.shares()))

    def op_report(self) -> dict:
        """How many ops of each name the program has, by phase: forward, backward, update.

        Raises:
            poptorch.Error: The model is not compiled.
        """
        self._check_compiled()
        return self._executable.op_report()

    def __getattr__(self, name: str):
        user_model = self.__dict__.get("_user_model")
        if user_model is None or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(user_model, name)

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
