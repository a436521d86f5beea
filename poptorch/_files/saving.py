"""The executor's methods for files."""

import contextlib
import time
from typing import Any

from poptorch._base import interrupts
from poptorch._capture.process_state import one_at_a_time
from poptorch._files import executable as files
from poptorch._optimizer.live import live
from poptorch._runtime import settings
from poptorch._runtime.compiled import CompiledModel
from poptorch._runtime.run_time_options import check_kept
from poptorch._weights import grouping
from poptorch.errors import Error


class Saving:
    """Writes a compiled model to a file and takes one from there; a part of PoplarExecutor."""

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
        self._current_for(args, kwargs).arguments.match(args, kwargs)
        return self.save(filename, export_model)

    def _current_for(self, args: tuple, kwargs: dict) -> CompiledModel:
        """Compiled also for what the optimizer has now, as a call has it."""
        compiled = self._compiled_for(args, kwargs)
        while self._optimizer is not None and self._optimizer.has_outgrown():
            self._compile_again(compiled, args, kwargs)
            compiled = self._compiled_for(args, kwargs)
        return compiled

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
        self._compiled_model("save")
        with contextlib.ExitStack() as stack:
            # Weights and states are of one step: no call of another thread changes them meanwhile.
            # A call in this thread stands still, as the handler of a signal saves.
            for executor in self._weights.sharers():
                if not executor._in_flight.is_caller():
                    stack.enter_context(executor._in_flight.end("save"))
            stack.enter_context(one_at_a_time)
            return self._saved(filename, export_model, save_rng_state)

    def _saved(self, filename: str, export_model: bool, save_rng_state: bool) -> str:
        compiled = self._compiled_model("save")
        compiled.guard.check()  # the file has the module as it is, and the program as it was
        compiled.interface.plain_tensors.check()
        self.copyWeightsToHostIfNeeded()
        if self._optimizer is not None:
            self._optimizer.check_outgrown("save")
            self._optimizer.state.before_run()
        exported = files.exported(self._model, self._user_model, self._optimizer,
                                  grouping.declared(self)) if export_model else None
        return files.write(files.Saved(
            compiled, self._model, self._options, self._training, exported,
            save_rng_state and self._device.can_run, type(self._user_model).__name__, self._modes),
            filename)

    def loadExecutable(self, filename: str) -> None:
        """Takes the program from a file instead of compiling; the weights are the module's.

        The state of the random generator and, unless the optimizer has a state of its own, the
        optimizer's state are those of the file.

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
        optimizer = self._optimizer and self._optimizer.optimizer
        has_state = optimizer is not None and live(optimizer).has_begun()
        with interrupts.deferred():  # what a handler of a signal raises is no fault of the file
            file = files.File(filename)
        self._load(file, with_optimizer=not has_state)

    def _load(self, file: files.File, *, with_optimizer: bool, member: str = "") -> None:
        """Takes a program from a file.

        Args:
            file: the file.
            with_optimizer: whether the optimizer's state is that of the file.
            member: of the file, that may be at fault for whatever is raised.
        """
        self._device.when_free(lambda: self._load_once(file, with_optimizer, member))

    @interrupts.whole
    def _load_once(self, file: files.File, with_optimizer: bool, member: str) -> None:
        guard = file.guard(member) if member else contextlib.nullcontext()
        with guard, one_at_a_time:
            self._check_can_load(file)
            with self._device.compiling():
                self._load_now(file, with_optimizer)

    def _check_can_load(self, file: files.File) -> None:
        if self.isCompiled():
            raise Error("[loadExecutable] the model is compiled already. Call destroy() first.")
        if file.manifest["training"] != self._training:
            kinds = {True: "trainingModel", False: "inferenceModel"}
            raise Error(f"[loadExecutable] {file.path}: the file was saved from "
                        f"{kinds[file.manifest['training']]}, this is "
                        f"{kinds[self._training]}. Wrap the module with the former.")
        self._check_class(file)
        options = file.options()
        with file.guard("options.json"):
            check_kept(self._options, options)

    def _check_class(self, file: files.File) -> None:
        own = type(self._user_model).__name__
        if file.manifest["model_class"] != own:
            raise Error(f"[loadExecutable] {file.path}: the file was made from a module of the "
                        f"class {file.manifest['model_class']}, this is a {own}. Wrap a module of "
                        f"the same class and settings.")

    def _check_optimizer(self, interface) -> None:
        if self._optimizer is None:
            return
        try:
            self._optimizer.check_compatible(interface.program.optimizer)
        except ValueError as error:
            where, _, what = str(error).partition("] ")
            if where != "[setOptimizer":  # contents that no save wrote
                raise
            raise Error(f"[loadExecutable] {what.partition('. ')[0]}. Make the optimizer as it was "
                        f"when the file was written.") from error

    def _load_now(self, file: files.File, with_optimizer: bool) -> None:
        begin = time.monotonic()
        self._weights.bring()
        interface = file.interface(self._model, self._step_spec(), self._modes)
        with file.guard("interface.json"):
            self._check_optimizer(interface)
            settings.check_buffers(self._options, self._user_model, interface.changed_buffers())
        executable = file.executable(settings.compile_options(self._options))
        with file.guard("interface.json"):
            interface.check_states(executable)
            compiled = CompiledModel.of(interface, executable, self._model, self._options,
                                        self._modes)
            interface.check_streams(executable, compiled.call)
            compiled.call.check_structure()

        def restore() -> None:
            file.write_state(executable, with_optimizer=with_optimizer)
            file.restore_rng_state(compiled.random)
            if self._optimizer is not None and with_optimizer:
                self._optimizer.state.came_with_program()

        with file.guard("interface.json"):
            self._publish(compiled, begin, restore)
