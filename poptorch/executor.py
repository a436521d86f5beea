"""The executor: capture -> translate -> compile -> run -> unpack."""

import torch
from tqdm import tqdm

from poptorch import _C, testing
from poptorch._capture import capture
from poptorch._executor import instrument, weights
from poptorch._executor.arguments import Arguments
from poptorch._executor.call import Call
from poptorch._executor.device import choose_device, initial_rng_state
from poptorch._executor.hyper import OptimizerLink
from poptorch._logging import logger
from poptorch._translate import StepSpec, translate
from poptorch.enums import OutputMode, ReductionType
from poptorch.errors import Error
from poptorch.options import Options

# The seven steps before the first run, as the progress bar counts them.
_STEPS = ("capture", "translate", "rewrite", "place", "schedule", "plan", "assemble")


class PoplarExecutor:
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
        options._freeze()
        self._options = _resolved(options, training)
        self._poptorch_version = poptorch_version
        self._optimizer = OptimizerLink(self._user_model, optimizer) if training else None
        self._executable = None
        self._program = None
        self._call = None
        self._seen_version = -1
        if training:
            instrument.instrument(self._user_model)

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
        """
        if self._executable is None:
            self.compile(*args, **kwargs)
        tensors = self._arguments.match(args, kwargs)
        self._sync_before_run()
        if self._optimizer is not None:
            self._optimizer.refresh(self._call)
        result = self._call.run(tensors)
        if self._program.updated:
            self._weights().written_by(self)
        return result

    def compile(self, *args, **kwargs) -> None:
        """Compiles the model for arguments like these, without running it.

        Raises:
            poptorch.Error: The model cannot be compiled. The executor can still be used.
        """
        if self._executable is not None:
            return
        self._weights().bring_to_host()
        choose_device(self._options)
        with tqdm(total=len(_STEPS), desc="compile", unit="step", leave=False,
                  disable=not self._options.show_compilation_progress_bar) as bar:
            def progress(step: str) -> None:
                bar.set_postfix_str(step, refresh=False)
                bar.update(_STEPS.index(step) - bar.n)

            spec = self._step_spec()
            progress("capture")
            arguments = Arguments(self._model, args, kwargs, spec.micro_batches)
            captured = capture(self._model, arguments.micro_args, arguments.micro_kwargs,
                               training=self._training)
            progress("translate")
            program = translate(captured, spec, self._optimizer)
            executable = _C.compile(program.module, _compile_options(spec), progress)
            bar.update(len(_STEPS) - bar.n)
        self._install(arguments, captured, program, executable, spec)

    def _install(self, arguments, captured, program, executable, spec) -> None:
        state = initial_rng_state(self._options.random_seed)
        for replica in range(spec.replicas):
            weights.write_rng(executable, state, replica)
        self._arguments, self._program, self._executable = arguments, program, executable
        if self._optimizer is not None:
            self._optimizer.compiled(program.optimizer, executable)
        self._call = Call(executable, program, captured, self._options, spec, arguments)
        self.copyWeightsToDevice()
        logger.debug("compiled: %s", executable.step_times())

    def _step_spec(self) -> StepSpec:
        options, training = self._options, self._options.Training
        reduction = training.accumulation_and_replication_reduction_type
        return StepSpec(training=self._training, device_iterations=options.device_iterations,
                        accumulation=training.gradient_accumulation if self._training else 1,
                        replicas=options.replication_factor,
                        mean=reduction is ReductionType.Mean,
                        keep_gradients=testing.keeps_gradients())

    # -- weights -------------------------------------------------------------------------------

    def _weights(self) -> weights.ModuleWeights:
        return weights.ModuleWeights.of(self._user_model)

    def _sync_before_run(self) -> None:
        shared = self._weights()
        writer = shared.writer
        if writer is not None and writer is not self:
            shared.bring_to_host()
        if self._seen_version != shared.version:
            self.copyWeightsToDevice()

    def copyWeightsToDevice(self) -> None:
        """Copies the module's parameters and buffers to the device. Done by the first call.

        Raises:
            poptorch.Error: The model is not compiled.
        """
        self._check_compiled()
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
        """Uses another optimiser, or the same one with other settings, from the next call on.

        Args:
            optimizer: of the same kind as the compiled one; learning rates and other numbers
                may differ.

        Raises:
            ValueError: It would change what is compiled in.
            poptorch.Error: The model was not wrapped for training.
        """
        if self._optimizer is None:
            raise Error("[setOptimizer] this model was wrapped for inference, which has no "
                        "optimiser. Use poptorch.trainingModel.")
        self._optimizer.set(optimizer)

    def _gradients(self) -> dict:
        self._check_compiled()
        return self._call.gradients()

    # -- life time -----------------------------------------------------------------------------

    def isCompiled(self) -> bool:
        """Whether the model has been compiled (and not destroyed)."""
        return self._executable is not None

    def destroy(self) -> None:
        """Reads the weights back and frees the device. A later call compiles again."""
        if self._executable is not None and self._weights().writer is self:
            self.copyWeightsToHost()
        self._executable = self._program = self._call = None
        if self._training:
            instrument.remove(self._user_model)

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
        """Peak bytes on the device by category; docs/guide tells what belongs to which.

        Raises:
            poptorch.Error: The model is not compiled.
        """
        self._check_compiled()
        return self._executable.memory_report()

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

    def __repr__(self) -> str:
        kind = "training" if self._training else "inference"
        return f"PoplarExecutor({kind}, {self._user_model!r})"


def _resolved(options: Options, training: bool) -> Options:
    own = options.clone()
    if own.output_mode is OutputMode.Default:
        own._set("output_mode", OutputMode.Final if training else OutputMode.All)
    own._freeze()
    return own


def _compile_options(spec: StepSpec) -> dict:
    return {"threads": torch.get_num_threads(), "replicas": spec.replicas}
