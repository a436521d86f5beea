"""The executor: capture -> translate -> compile -> run -> unpack.

The steps 1 (capture) and 2 (translate) are called in ``_executor/translation.py``, the steps 3 to 8
in ``csrc/compile.cpp``, step 9 (run) here. All else is forwarded to the parts in ``_executor``.
"""

import time
from typing import Any
from weakref import WeakMethod, ref

import torch

from poptorch._base.checks import check_module, public_names
from poptorch._base.torch_private.basic import untraced
from poptorch._base.torch_private.modes_off import is_plain_for, plain_torch
from poptorch._device.device import Device
from poptorch._executor.attachment import Attachment
from poptorch._executor.caching import compiled
from poptorch._executor.compilation import Compilation, change_of
from poptorch._executor.device_reports import DeviceReports
from poptorch._executor.forwarding import forward_property, forward_to, module_attribute
from poptorch._executor.inspection import Inspection
from poptorch._executor.reports import Reports
from poptorch._executor.saving import Saving
from poptorch._executor.tracebacks import shortened
from poptorch._executor.translation import translated
from poptorch._executor.weights import WeightCopies
from poptorch._files.executable import File
from poptorch._guards.guard import Outdated
from poptorch._guards.plain_tensors import PlainTensors
from poptorch._guards.training_modes import TrainingModes
from poptorch._reports.profile_report import ProfileReport, run_recorded
from poptorch._runtime.compiled import CompiledModel
from poptorch._runtime.interface import Interface
from poptorch._runtime.lifecycle import Lifecycle, Superseded
from poptorch._runtime.programs import Programs
from poptorch._runtime.wrapped import Wrapped
from poptorch._weights.grouping import Groupings
from poptorch._weights.link import WeightLink, check_kept
from poptorch.errors import Error
from poptorch.options._options import Options, checked_options


class PoplarExecutor:
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
        TypeError: ``model`` is not a module, or ``options`` is not a :class:`poptorch.Options`.

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
        check_module(model, where)
        self._model, self._training, self._poptorch_version = model, training, poptorch_version
        self._user_model = model if user_model is None else user_model
        self._args_parser = None  # other programs put theirs here before the first call
        self._wrapped = wrapped = Wrapped(model, self._user_model, options, training, optimizer)
        self._options, self._optimizer = wrapped.options, wrapped.optimizer
        self._modes = wrapped.modes
        self._device = device = Device(self._options)
        self._report = report = ProfileReport.of(self._options)
        self._weights = weights = WeightLink(self._user_model, training, ref(self))
        self._programs = programs = Programs(wrapped, weights, device, report)
        self._groupings = Groupings(model, self._options.replication_factor,
                                    lambda: programs.current is not None)
        self._lifecycle = lifecycle = Lifecycle(device)
        build = WeakMethod(self._build)  # so that the executor is freed once it is forgotten
        self._compilation = compilation = Compilation(wrapped, programs, weights, device,
                                                      lifecycle, report, build)
        self._attachment = Attachment(programs, weights, device, lifecycle, report)
        self._copies = WeightCopies(wrapped, programs, weights)
        self._inspection = Inspection(wrapped, programs)
        self._reports = Reports(wrapped, programs, weights, device, self._attachment,
                                compilation, build)
        self._device_reports = DeviceReports(programs)
        self._logs_cycles = self._options.log_cycle_count
        self._saving = Saving(
            wrapped, self._groupings, programs, weights, device, lifecycle, compilation,
            lambda: [executor._lifecycle for executor in weights.sharers()])
        options._freeze()

    # -- the data path -------------------------------------------------------------------------

    @untraced
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model; compiles it first if this is the first call.

        Args:
            args: as the module's ``forward`` takes them; the first dimension of each tensor is
                ``device_iterations * gradient_accumulation * replication_factor *
                micro-batch``.
            kwargs: keyword arguments of ``forward``, with the same first dimension.

        Returns:
            What ``forward`` returns, with the results that the output mode keeps.

        Raises:
            poptorch.Error: An argument differs from the compiled ones; or the model cannot be
                compiled; or torch traces or transforms what the caller does.
            AssertionError: The options say that the model is compiled and never run.
        """
        if self._device.returns_zeros:
            return self._compilation.zeros(args, kwargs)
        self._device.check_can_run()
        is_plain = is_plain_for("executor")
        while True:
            try:
                return self._call_once(is_plain, args, kwargs)
            except Superseded:
                time.sleep(0)  # whoever replaces the program goes on
            except Exception as error:
                raise shortened(error)

    def _call_once(self, is_plain: bool, args: tuple, kwargs: dict) -> Any:
        # One program for the whole call: another thread may replace it until the call begins.
        program = self._programs.current or self._compilation.ensure_compiled(args, kwargs)
        if not self._device.is_held:
            self._attachment.attach()
        try:
            tensors = program.match(args, kwargs)
        except Error as error:
            self._compilation.replace(program, change_of(error), args, kwargs)
            raise Superseded from None
        change, caller = None, self._lifecycle.begin_call()
        try:
            if self._programs.current is not program or not self._device.is_held:
                raise Superseded
            if not self._compilation.is_outdated():
                if is_plain:
                    return self._run(program, tensors)
                with plain_torch():
                    return self._run(program, tensors)
        except Outdated as outdated:
            change = outdated.change
        finally:
            self._lifecycle.end_call(caller)
        self._compilation.replace(program, change, args, kwargs)
        raise Superseded

    def _run(self, program: CompiledModel, tensors: list[torch.Tensor]) -> Any:
        """Step 9: a run with the newest weights and states, which it changes."""
        weights, optimizer = self._weights, self._optimizer
        if program.reads_states or optimizer is not None and optimizer.has_loaded:
            weights.pull_to_host()
        is_written = program.guards.check()
        weights.check_arguments(program, tensors)
        weights.before_run(program, is_written)
        if optimizer is not None and not optimizer.before_run(program.call):
            raise Superseded  # the next attempt compiles
        # Before it, as it may be ended after its first updates, and what ends it may also come
        # right after it; and after it, as another thread may have read the values meanwhile.
        weights.note_run(program)
        try:
            result = run_recorded(self._report, program, tensors, self._options)
        finally:
            replaced = weights.note_run(program, is_end=True)
            if optimizer is not None:
                optimizer.after_run()
        check_kept(replaced)
        if optimizer is not None:
            optimizer.ended(program.call)
        if self._logs_cycles:
            self._device_reports.log_cycles(program)
        return result

    def _streams_alone(self) -> tuple[Any, list[int], list] | None:
        """The executable of the current program and :meth:`Call.streams_alone`; None if a call does
        more than to run the program on these streams."""
        program = self._programs.current
        if program is None or program.program.updated or program.reads_states \
                or self._device.returns_zeros or self._report is not None or self._logs_cycles:
            return None
        streams = program.call.streams_alone()
        return streams and (program.executable, *streams)

    def _build(self, options: Options, args: tuple, kwargs: dict, progress,
               placed=lambda ipus: None) -> CompiledModel:
        """Steps 1 to 8: makes a program for arguments like these, and changes nothing else.

        ``placed`` is called with the IPUs of all replicas, once they are known.
        """
        model, wrapped = self._model, self._wrapped
        made = translated(wrapped, options, self._groupings.weight_groups(), args, kwargs,
                          progress, self._args_parser)
        captured, program = made.captured, made.program
        with plain_torch():
            executable = compiled(wrapped, made, options, progress,
                                  lambda ipus: placed(ipus * options.replication_factor))
            interface = Interface(made.arguments, captured.out_spec, program, made.spec,
                                  captured.attributes, captured.argument_attributes,
                                  captured.outer, PlainTensors(captured.plain_tensors),
                                  captured.modes)
            return CompiledModel.of(interface, executable, model, options, wrapped.modes)

    # -- what the parts do ---------------------------------------------------------------------

    compile = forward_to("_compilation", Compilation.compile)
    setOptimizer = forward_to("_wrapped", Wrapped.setOptimizer)
    train = forward_to("_modes", TrainingModes.train)
    eval = forward_to("_modes", TrainingModes.eval)
    destroy = forward_to("_attachment", Attachment.destroy)
    copyWeightsToDevice = forward_to("_copies", WeightCopies.copyWeightsToDevice)
    copyWeightsToHost = forward_to("_copies", WeightCopies.copyWeightsToHost)
    copyNamedBuffersToDevice = forward_to("_copies", WeightCopies.copyNamedBuffersToDevice)
    copyWeightsToHostIfNeeded = forward_to("_copies", WeightCopies.copyWeightsToHostIfNeeded)
    state_dict = forward_to("_copies", WeightCopies.state_dict)
    load_state_dict = forward_to("_copies", WeightCopies.load_state_dict)
    compileAndExport = forward_to("_saving", Saving.compileAndExport)
    save = forward_to("_saving", Saving.save)
    loadExecutable = forward_to("_saving", Saving.loadExecutable)
    isCompiled = forward_to("_inspection", Inspection.isCompiled)
    model = forward_property("_inspection", Inspection.model)
    options = forward_property("_inspection", Inspection.options)
    training = forward_property("_inspection", Inspection.training)
    getTensorNames = forward_to("_inspection", Inspection.getTensorNames)
    getAnchoredTensor = forward_to("_inspection", Inspection.getAnchoredTensor)
    getPerfCounters = forward_to("_inspection", Inspection.getPerfCounters)
    getLatency = forward_to("_inspection", Inspection.getLatency)
    getHostIpuLatency = forward_to("_inspection", Inspection.getHostIpuLatency)
    getComputeLatency = forward_to("_inspection", Inspection.getComputeLatency)
    getIpuHostLatency = forward_to("_inspection", Inspection.getIpuHostLatency)
    programs = forward_to("_inspection", Inspection.programs)
    compilationTime = forward_property("_inspection", Inspection.compilationTime)
    rng_state = forward_property("_inspection", Inspection.rng_state)
    ir = forward_to("_reports", Reports.ir)
    memory_report = forward_to("_reports", Reports.memory_report)
    partition_summary = forward_to("_reports", Reports.partition_summary)
    op_report = forward_to("_reports", Reports.op_report)
    work_report = forward_to("_reports", Reports.work_report)
    schedule = forward_to("_reports", Reports.schedule)
    timeline = forward_to("_reports", Reports.timeline)
    report = forward_to("_device_reports", DeviceReports.report)
    nan_report = forward_to("_reports", Reports.nan_report)
    isAttachedToDevice = forward_to("_attachment", Attachment.isAttachedToDevice)
    attachToDevice = forward_to("_attachment", Attachment.attachToDevice)
    detachFromDevice = forward_to("_attachment", Attachment.detachFromDevice)
    cycleCount = forward_to("_device_reports", DeviceReports.cycleCount)
    per_replica_params = forward_property("_groupings", Groupings.per_replica_params)
    # Names that existing programs, and tests, read.
    _is_attached = property(isAttachedToDevice)
    _executable = forward_property("_inspection", Inspection.executable)
    _executable_inputs = forward_property("_inspection", Inspection.executable_inputs)
    _debugGetPopartIR = forward_to("_inspection", Inspection.popart_ir)
    _gradients = forward_to("_inspection", Inspection.gradients)

    # -- attributes of the module ---------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        user_model = self.__dict__.get("_user_model")
        if user_model is None or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return module_attribute(user_model, name, type(self))

    def __setattr__(self, name: str, value: Any) -> None:
        user_model = self.__dict__.get("_user_model")
        is_own = (name.startswith("_") or user_model is None or name in self.__dict__
                  or hasattr(type(self), name))
        if is_own or not hasattr(user_model, name):
            super().__setattr__(name, value)
        else:
            setattr(user_model, name, value)

    def __dir__(self) -> list[str]:
        return public_names([*super().__dir__(), *dir(self._user_model)])

    def __reduce__(self):
        wrapped, optimizer = self._wrapped, self._optimizer
        return wrapped_again, (type(self), {
            "model": self._model, "options": wrapped.given_options.clone(),
            "training": self._training, "poptorch_version": self._poptorch_version,
            "optimizer": optimizer and optimizer.optimizer,
            "user_model": None if self._user_model is self._model else self._user_model},
            self._groupings.declared(), wrapped.modes.by_path())

    def __repr__(self) -> str:
        return f"PoplarExecutor({'training' if self._training else 'inference'}, " \
               f"{self._user_model!r})"


def wrapped_again(cls: type, arguments: dict, groupings: dict, modes: dict) -> PoplarExecutor:
    """A copy of an executor, not yet compiled; ``modes`` are those of the layers, by path."""
    executor = cls(**arguments)
    executor._groupings.declare(groupings)
    executor._wrapped.modes.take(modes)
    return executor


def take_program(executor: PoplarExecutor, file: File) -> None:
    """Takes the program of the file that an executor's module and optimizer are from."""
    executor._saving.load(file, with_optimizer=True, member="model.json")
