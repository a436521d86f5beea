"""The two functions that wrap a module."""

from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch

from poptorch._base import interrupts
from poptorch._executor.tracebacks import shortens
from poptorch._files.executable import File
from poptorch._runtime.run_time_options import edited
from poptorch._runtime.with_loss import WithLoss
from poptorch._weights import instrument
from poptorch.errors import Error
from poptorch.executor import PoplarExecutor, take_program, wrapped_again
from poptorch.options import Options
from poptorch.options._options import checked_options
from poptorch.version import __version__

FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, partial)


@shortens
def trainingModel(model: torch.nn.Module, options: Options | None = None,
                  optimizer: torch.optim.Optimizer | None = None, *,
                  loss: Callable[[Any, Any], torch.Tensor] | None = None) -> PoplarExecutor:
    """Wraps a module for training: each call runs forward, backward and weight update.

    With ``loss``, the last positional argument of a call is the target, the module takes the other
    arguments, and the call returns ``(output, loss)``. The output and the target may be tensors, or
    tuples, lists and dictionaries of tensors.

    Without ``loss``, the module's ``forward`` returns its loss (alone or among other things). One
    loss must stand out: marked by :func:`poptorch.identity_loss`, or computed by one of PyTorch's
    loss functions, or the only number returned that is computed from these. A loss that depends on
    no parameter updates nothing, which is warned of.

    Args:
        model: the module. Its parameters are trained; reading them shows the trained values.
        options: how to compile and run; None: the defaults. They cannot be changed afterwards.
        optimizer: one of ``poptorch.optim`` or ``torch.optim``: SGD, ASGD, Rprop; Adam, AdamW,
            Adamax, NAdam, RAdam, LAMB; RMSprop, Adagrad, Adadelta, Adafactor; Muon; a subclass of
            one of these; or one with its own ``step()``, which is captured when the model is
            compiled. None: SGD with a learning rate of 0.01.
        loss: a function or a module that takes the output and the target and returns one number.
            Its parameters must not require grad. None: ``forward`` computes the loss.

    Returns:
        An executor, to be called like the module; with ``loss``, also with the target.

    Raises:
        TypeError: ``model`` is not a module, ``options`` is not a :class:`poptorch.Options`, or
            ``loss`` cannot be called.
        RuntimeError: The module is already wrapped for training.
        poptorch.Error: The device does not support the optimizer's class, or a parameter of
            ``loss`` requires grad.

    Example:
        >>> import poptorch, torch
        >>> class Net(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.fc = torch.nn.Linear(4, 2)
        ...     def forward(self, x, target):
        ...         y = self.fc(x)
        ...         return y, torch.nn.functional.cross_entropy(y, target)
        >>> net = Net()
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1)
        >>> model = poptorch.trainingModel(net, opts, optimizer)
        >>> y, loss = model(torch.ones(3, 4), torch.tensor([0, 1, 0]))
        >>> y.shape, loss.shape
        (torch.Size([3, 2]), torch.Size([]))

        The same with ``loss``, and a module that does not compute it:

        >>> net = torch.nn.Linear(4, 2)
        >>> optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1)
        >>> model = poptorch.trainingModel(net, opts, optimizer, loss=torch.nn.CrossEntropyLoss())
        >>> y, loss = model(torch.ones(3, 4), torch.tensor([0, 1, 0]))
        >>> y.shape, loss.shape
        (torch.Size([3, 2]), torch.Size([]))
    """
    if isinstance(model, PoplarExecutor):
        model = model.model
    if isinstance(model, torch.export.ExportedProgram):
        raise Error("[trainingModel] an ExportedProgram is a graph for inference, without the "
                    "module's training behaviour. Pass the torch.nn.Module itself.")
    options = checked_options(Options() if options is None else options, "trainingModel")
    if options.Distributed.numProcesses > 1:
        raise Error(f"[Distributed.configureProcessId] training in "
                    f"{options.Distributed.numProcesses} processes is not implemented: "
                    f"gradients are not combined over processes. Call "
                    f"options.Distributed.disable(), and use replicationFactor.")
    if instrument.is_instrumented(model):
        raise RuntimeError("Model has already been wrapped in 'poptorch.trainingModel'. Call "
                           "model.destroy() on the model to unwrap before wrapping again.")
    is_module = isinstance(model, torch.nn.Module)  # the executor refuses others
    captured = model if loss is None or not is_module else WithLoss(model, loss)
    return PoplarExecutor(model=captured, options=options, training=True, user_model=model,
                          poptorch_version=__version__, optimizer=optimizer)


class FunctionModule(torch.nn.Module):
    """A module whose ``forward`` is a function."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.forward = function


@shortens
def inferenceModel(model: torch.nn.Module | Callable[..., Any],
                   options: Options | None = None) -> PoplarExecutor:
    """Wraps a module or a function for inference.

    Args:
        model: the module, or a ``torch.export.ExportedProgram``, or the executor of a
            :func:`trainingModel` (its module is used). Or a function of tensors, such as
            ``lambda x: x.softmax(-1)``. Call ``eval()`` on a module first where
            dropout or batch norm is to behave as in evaluation.
        options: how to compile and run; None: the defaults. They cannot be changed afterwards.

    Returns:
        An executor, to be called like the module.

    Raises:
        TypeError: ``model`` is not a module, or ``options`` is not a :class:`poptorch.Options`.
        ValueError: The options set gradient accumulation.

    Example:
        >>> import poptorch, torch
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
        >>> model(torch.ones(3, 4)).shape
        torch.Size([3, 2])
    """
    options = checked_options(Options() if options is None else options, "inferenceModel")
    if options.Training.gradient_accumulation != 1:
        raise ValueError(f"[inferenceModel] gradientAccumulation must be 1 for inference, got "
                         f"{options.Training.gradient_accumulation}. To run several batches in a "
                         f"call (as pipelined execution needs), use deviceIterations.")
    if isinstance(model, PoplarExecutor):
        model = model.model
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module()
    if isinstance(model, FUNCTIONS):
        model = FunctionModule(model)
    return PoplarExecutor(model=model, options=options, training=False,
                          poptorch_version=__version__)


def load(filename: str,
         edit_opts_fn: Callable[[Options], object] | None = None) -> PoplarExecutor:
    """Makes an executor of a file: module, optimizer and compiled program, ready to run.

    Nothing is captured or compiled, and no code of the file is run: it is data, and the classes
    that it names must have been imported by the program.

    Args:
        filename: of a file that :meth:`PoplarExecutor.compileAndExport` or
            :meth:`PoplarExecutor.save` wrote with ``export_model=True``.
        edit_opts_fn: is given the options before they are used, and may change those that the
            program does not depend on (device, logging).

    Returns:
        The executor. Its module is a new object; for training, so is its optimizer, which
        :meth:`PoplarExecutor.setOptimizer` replaces.

    Raises:
        poptorch.Error: The file cannot be used; the message says why: damaged, written by another
            version, without a module, or naming a class that is not imported; or
            ``edit_opts_fn`` changed an option that is compiled in, or returned other options.
        TypeError: ``edit_opts_fn`` is not a function.

    Example:
        >>> import os, poptorch, tempfile, torch
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
        >>> x = torch.ones(3, 4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = model.compileAndExport(os.path.join(folder, "linear.poptorch"), x)
        ...     again = poptorch.load(path, lambda opts: opts.useIpuModel(True))
        >>> torch.equal(again(x), model(x)), again.options.use_ipu_model
        (True, True)
    """
    with interrupts.deferred():  # what a handler of a signal raises is no fault of the file
        file = File(filename)
    return loaded(file, edit_opts_fn)


def loaded(file: File, edit_opts_fn: Callable[[Options], object] | None) -> PoplarExecutor:
    """The executor of an opened file."""
    with interrupts.deferred():
        if "model" not in file:
            raise Error(f"[load] {file.path} was written with export_model=False and has no "
                        f"module. Wrap the module again and call loadExecutable() on the wrapper.")
        options = edited(file.options, edit_opts_fn)
        with file.guard("model.json"):
            arguments, groupings = file.wrapped()
            arguments |= {"options": options, "poptorch_version": __version__}
            executor = wrapped_again(PoplarExecutor, arguments, groupings, file.modes())
    take_program(executor, file)
    return executor
