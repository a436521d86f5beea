"""``poptorch.estimate``."""

from typing import Any

import torch

from poptorch._executor.placing import Placed, placed
from poptorch._reports.device.options import report_of
from poptorch._reports.device.report import DeviceReport
from poptorch.executor import PoplarExecutor
from poptorch.options import Options


def estimate(model: torch.nn.Module, options: Options, *inputs: Any,
             optimizer: torch.optim.Optimizer | None = None, **named: Any) -> DeviceReport:
    """The report of a model without compiling or running it.

    Use it for models that are too large for the host, or for systems with more IPUs than a process
    may have. No device is attached, no weight is allocated or read. The model, the options and the
    optimizer stay as they are.

    Args:
        model: the module. Its parameters and buffers may be on the meta device.
        options: as for :func:`inferenceModel` and :func:`trainingModel`. ``Options.target`` or a
            system select the kind of IPU; without them the report is for Mk2 (GC200).
        inputs: arguments of one call, with the batch of a whole step. Of tensors only shape and
            dtype matter, so they may be on the meta device.
        optimizer: estimates training with this optimizer; None: inference.
        named: keyword arguments of one call.

    Returns:
        What :meth:`PoplarExecutor.report` returns for the compiled model.

    Raises:
        TypeError: ``model`` is not a module, or ``options`` is not a :class:`poptorch.Options`.
        poptorch.Error: The model cannot be compiled.

    Example:
        >>> import poptorch, torch
        >>> with torch.device("meta"):
        ...     net = torch.nn.Linear(4096, 16384, dtype=torch.float16)
        >>> x = torch.zeros(16, 4096, dtype=torch.float16)
        >>> report = poptorch.estimate(net, poptorch.Options(), x)
        >>> report.target, report.fits, report.memory["parameters"]
        ('gc200', True, 134250496)
    """
    if isinstance(model, PoplarExecutor):
        model = model.model
    return report(model, options, placed(model, options, inputs, named, optimizer, "estimate"))


def report(model: torch.nn.Module, options: Options, program: Placed) -> DeviceReport:
    """The report of a placed program of ``model``, for which the user gave ``options``."""
    return report_of(program.text, program.options, options, samples=program.samples,
                     title=f"{type(model).__name__}, {program.options.model_name}",
                     is_training=program.spec.training)
