"""``poptorch.compile``: a module or function that runs on the device inside an eager program."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from poptorch._base import capture_context
from poptorch._torch_compile.backend import backend, checked
from poptorch._weights import instrument
from poptorch.errors import Error
from poptorch.executor import PoplarExecutor
from poptorch.options import Options


def compile(function_or_module: Callable[..., Any], options: Options | None = None
            ) -> Callable[..., Any]:
    """Compiles a module or a function that an eager PyTorch program calls.

    Under grad mode the results have a ``grad_fn`` if an argument or a parameter requires grad.
    ``backward()`` then runs the compiled backward pass and fills ``.grad``, so any PyTorch
    optimizer trains the parameters. Under ``torch.no_grad()`` a call is inference.

    The first call compiles. A call with new shapes, dtypes, Python values or training modes
    compiles again. ``torch.compile`` traces the code: it runs unsupported Python code eagerly, and
    compiles the code before and after it.

    Args:
        function_or_module: a module is compiled in place, as by ``torch.nn.Module.compile``. Its
            parameters and ``state_dict`` do not change, and it can be part of another module.
        options: how to compile and run; None: the defaults. ``deviceIterations``,
            ``replicationFactor`` and ``gradientAccumulation`` must be 1, and ``randomSeed`` is not
            supported: each call takes a seed from torch's generator.

    Returns:
        The module itself, or a function that is called like the given one.

    Raises:
        TypeError: ``function_or_module`` is not a module or function, or ``options`` is not a
            :class:`poptorch.Options`.
        poptorch.Error: The options split a batch or set a seed. A call raises it where
            the module is also part of a :func:`trainingModel`.

    Example:
        >>> import poptorch, torch
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> encoder = poptorch.compile(torch.nn.Linear(4, 2), opts)
        >>> net = torch.nn.Sequential(encoder, torch.nn.Linear(2, 1))
        >>> optimizer = torch.optim.Adam(net.parameters())
        >>> net(torch.ones(3, 4)).sum().backward()
        >>> optimizer.step()
        >>> encoder.weight.grad.shape
        torch.Size([2, 4])
    """
    if isinstance(function_or_module, PoplarExecutor) or not callable(function_or_module):
        raise TypeError(f"[compile] expected a torch.nn.Module or a function, got "
                        f"{type(function_or_module).__name__}. Pass the module itself.")
    options = checked(options, "compile")
    from poptorch._base.torch_private import compiling  # importing it takes seconds

    traced = partial(compiling.compile, backend=partial(backend, options=options),
                     recompile_limit=options.recompilation_limit)
    if not isinstance(function_or_module, torch.nn.Module):
        return traced(function_or_module)
    compiling.set_call(function_or_module, partial(_call_of, function_or_module, traced))
    return function_or_module


def _call_of(module: torch.nn.Module, traced: Callable, call: Callable) -> Callable:
    """What runs in place of ``call`` when a module is called."""
    from poptorch._base.torch_private import compiling  # importing it takes seconds

    compiled = traced(call)

    def run(*args, **kwargs):
        if capture_context.is_capturing():  # an executor compiles the module, or one around it
            return call(*args, **kwargs)
        if instrument.is_instrumented(module):
            raise Error(f"[compile] cannot run the compiled {type(module).__name__}: it is also "
                        f"part of a poptorch.trainingModel, which has its weights. Call "
                        f"destroy() on the training model first, or use poptorch.inferenceModel.")
        with compiling.compile_lock:  # Dynamo refuses calls while another thread compiles
            pass
        return compiled(*args, **kwargs)

    return run
