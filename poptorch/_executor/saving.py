"""The executor's methods for files."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from poptorch._base import interrupts
from poptorch._capture.process_state import one_at_a_time
from poptorch._device.device import Device
from poptorch._device.memory_check import check_tile_memory
from poptorch._executor.compilation import Compilation
from poptorch._files import executable as files
from poptorch._files import problems
from poptorch._runtime import settings
from poptorch._runtime.compiled import CompiledModel
from poptorch._runtime.lifecycle import Lifecycle
from poptorch._runtime.programs import Programs
from poptorch._runtime.run_time_options import check_kept
from poptorch._runtime.wrapped import Wrapped
from poptorch._weights.grouping import Groupings
from poptorch._weights.link import WeightLink
from poptorch.errors import Error


@dataclass(frozen=True)
class Saving:
    """Writes a compiled model to a file and takes one from there."""

    wrapped: Wrapped
    groupings: Groupings
    programs: Programs
    weights: WeightLink
    device: Device
    lifecycle: Lifecycle
    compilation: Compilation
    sharers: Callable[[], list[Lifecycle]]  # of all that have copies of the weights

    def compileAndExport(self, filename: str, *args: Any, export_model: bool = True,
                         **kwargs: Any) -> str:
        """Compiles the model, if it is not yet, and writes it to a file, weights included.

        Args:
            filename: the file's path; a file there is replaced, also through a link. In a folder
                that exists, a new file is made.
            args: as the module's ``forward`` takes them.
            export_model: whether module and optimizer go into the file, as :func:`poptorch.load`
                needs them. False for a module of a class that is not at the top level of a
                Python module; then :meth:`loadExecutable` takes the file.
            kwargs: as ``forward`` takes them.

        Returns:
            The path of the file.

        Raises:
            poptorch.Error: The model cannot be compiled, some part of the module cannot be
                written, or the file cannot be.

        Example:
            >>> import os, poptorch, tempfile, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> x = torch.ones(3, 4)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = model.compileAndExport(os.path.join(folder, "linear.poptorch"), x)
            ...     again = poptorch.load(path)
            >>> torch.equal(again(x), model(x))
            True
        """
        self.compilation.ensure_current(args, kwargs)
        return self.save(filename, export_model)

    def save(self, filename: str, export_model: bool = True, save_rng_state: bool = True) -> str:
        """Writes the compiled model to a file, as it is now.

        The file holds the program, the weights (those trained on the device are read back
        first), the optimizer's state, the options, and what ``export_model`` and
        ``save_rng_state`` say. A model that is loaded from it continues from the state of this one.

        Args:
            filename: as in :meth:`compileAndExport`.
            export_model: as in :meth:`compileAndExport`.
            save_rng_state: whether the state of the device's random generator goes into the
                file; without it, a loaded model starts at the seed of its options.

        Returns:
            The path of the file.

        Raises:
            poptorch.Error: The model is not compiled, some part of the module cannot be written,
                or the file cannot be; or the model would be compiled again by the next call, as
                the optimizer got other parameters, or other numbers of updates.

        Example:
            >>> import os, poptorch, tempfile, torch
            >>> class Net(torch.nn.Sequential):
            ...     def forward(self, x):
            ...         return poptorch.identity_loss(super().forward(x), "sum")
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.trainingModel(Net(torch.nn.Linear(4, 2)), opts)
            >>> x = torch.ones(3, 4)
            >>> loss = model(x)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = model.save(os.path.join(folder, "net.poptorch"), export_model=False)
            ...     print(os.path.basename(path))
            net.poptorch
        """
        self.programs.require("save")
        with standing_still([self], "save"):
            return files.write(self.contents(export_model, save_rng_state), filename)

    def contents(self, export_model: bool, save_rng_state: bool) -> files.Contents:
        """What :meth:`save` writes; called while no call runs."""
        wrapped, compiled = self.wrapped, self.programs.require("save")
        if export_model and isinstance(wrapped.model, torch.fx.GraphModule):
            raise Error("[save] the module is a graph, as torch.export makes it, which is code and "
                        "cannot be put into a file. Pass export_model=False, keep the graph with "
                        "torch.export.save, and call loadExecutable() on a wrapper of it.")
        # The file has the module as it is, and the program as it was.
        compiled.require_unchanged("save")
        self.weights.pull_to_host()
        if wrapped.optimizer is not None:
            wrapped.optimizer.before_save()
        return files.Contents(wrapped, compiled,
                              self.groupings.declared() if export_model else None,
                              save_rng_state and self.device.can_run)

    def loadExecutable(self, filename: str) -> None:
        """Takes the program from a file instead of compiling; the weights are the module's.

        The program computes in the mode, training or evaluation, that it was compiled for. If the
        module is in the other one, a warning says so.

        The state of the random generator and, unless the optimizer has a state of its own, the
        optimizer's state are those of the file. An optimizer with its own ``step()`` gets them by
        ``load_state_dict()``, which also sets the numbers of its parameter groups.

        Args:
            filename: of a file that :meth:`compileAndExport` or :meth:`save` wrote for a module
                of the same class and settings, wrapped with the same options and kind of optimizer.

        Raises:
            poptorch.Error: The file cannot be used; the message says why: damaged, written by
                another version, or made for another module or other options.

        Example:
            >>> import os, poptorch, tempfile, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> net, x = torch.nn.Linear(4, 2), torch.ones(3, 4)
            >>> model = poptorch.inferenceModel(net, opts)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = os.path.join(folder, "linear.poptorch")
            ...     _ = model.compileAndExport(path, x, export_model=False)
            ...     other = poptorch.inferenceModel(net, opts)
            ...     other.loadExecutable(path)
            >>> other.isCompiled(), torch.equal(other(x), model(x))
            (True, True)
        """
        optimizer = self.wrapped.optimizer
        has_state = optimizer is not None and optimizer.has_begun()
        with interrupts.deferred():  # what a handler of a signal raises is no fault of the file
            file = files.File(filename)
        self.load(file, with_optimizer=not has_state)

    def load(self, file: files.File, *, with_optimizer: bool, member: str = "") -> None:
        """Takes the program from a file, and the optimizer's state if ``with_optimizer``.

        ``member`` of the file has the module, and may be at fault for whatever is raised; "": the
        module is the user's.
        """
        def load() -> None:
            with file.guard(member) if member else contextlib.nullcontext():
                self._check_can_load(file)
                if member and self.wrapped.optimizer is not None:
                    self.wrapped.optimizer.numbers()  # calls read them: here the file is at fault
                modes, before = self.wrapped.modes, self.wrapped.modes.by_path()
                modes.take(file.modes())  # the module here may be in another mode
                try:
                    with self.device.compiling():
                        self._load(file, with_optimizer)
                except BaseException:
                    modes.take(before)
                    raise
                self.programs.current.modes.warn()

        self.lifecycle.alone("loadExecutable", load, waits_for_calls=False)

    def _check_can_load(self, file: files.File) -> None:
        wrapped, kinds = self.wrapped, {True: "trainingModel", False: "inferenceModel"}
        if self.programs.current is not None:
            raise Error("[loadExecutable] the model is compiled already. Call destroy() first.")
        if file.manifest["training"] != wrapped.training:
            raise Error(f"[loadExecutable] {file.path}: the file was saved from "
                        f"{kinds[file.manifest['training']]}, this is "
                        f"{kinds[wrapped.training]}. Wrap the module with the former.")
        kind, own = file.manifest["model_class"], type(wrapped.user_model).__name__
        if kind != own:
            raise problems.other_module(f"{file.path}: the file was made from a module of the "
                                        f"class {kind}, this is a {own}")
        options = file.options
        self.device.check_version(options.offline_ipu_version)
        with file.guard("options.json"):
            check_kept(wrapped.options, options)

    def _check_optimizer(self, interface) -> None:
        try:
            self.wrapped.optimizer.check_compatible(interface.program.optimizer)
        except ValueError as error:
            where, _, what = str(error).partition("] ")
            if where != "[setOptimizer":  # contents that no save wrote
                raise
            raise Error(f"[loadExecutable] {what.partition('. ')[0]}. Make the optimizer as it was "
                        f"when the file was written.") from error

    def _load(self, file: files.File, with_optimizer: bool) -> None:
        begin, wrapped, options = time.monotonic(), self.wrapped, self.wrapped.options
        self.weights.pull_to_host()
        spec = settings.step_spec(options, wrapped.training, self.groupings.weight_groups())
        interface = file.interface(wrapped.model, spec, wrapped.modes)
        with file.guard("interface.json"):
            if wrapped.optimizer is not None:
                self._check_optimizer(interface)
            settings.check_buffers(options, wrapped.user_model, interface.changed_buffers())
        executable = file.executable(settings.compile_options(options))
        check_tile_memory(executable, options)
        with file.guard("interface.json"):
            interface.check_states(executable)
            compiled = CompiledModel.of(interface, executable, wrapped.model, options,
                                        wrapped.modes)
            interface.check_streams(executable, compiled.call)
            compiled.call.check_structure()

        def restore() -> None:
            file.write_state(compiled, with_optimizer=with_optimizer)
            file.restore_rng_state(compiled.random)
            if wrapped.optimizer is not None and with_optimizer:
                wrapped.optimizer.loaded_with_program()

        with file.guard("interface.json"):
            self.programs.add(compiled, begin, "loaded from a file", restore)


@contextlib.contextmanager
def standing_still(savings: Iterable[Saving], where: str) -> Iterator[None]:
    """Weights and states are of one step meanwhile: no call of another thread changes them.

    A call in this thread stands still, as the handler of a signal saves.
    """
    sharers = dict.fromkeys(one for saving in savings for one in saving.sharers())
    with contextlib.ExitStack() as stack:
        for lifecycle in sharers:
            if not lifecycle.is_in_call():
                stack.enter_context(lifecycle.without_calls(where))
        stack.enter_context(one_at_a_time)
        yield
