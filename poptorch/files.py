"""Files of several programs over one set of weights, and of weights alone."""

from collections.abc import Callable, Mapping

import safetensors
import safetensors.torch
import torch

from poptorch._base import interrupts
from poptorch._base.checks import check_module
from poptorch._executor.saving import standing_still
from poptorch._files import bundle, place, problems, tensors
from poptorch._files.archive import PROGRAM_NAME, path_of
from poptorch.errors import Error
from poptorch.executor import PoplarExecutor
from poptorch.models import loaded
from poptorch.options import Options


def save_bundle(models: Mapping[str, PoplarExecutor], filename: str) -> str:
    """Writes several compiled models of one module to a file, which has the weights once.

    Each program is written as :meth:`PoplarExecutor.save` does it, with its module, options,
    optimizer and random state. :func:`load_bundle` reads the file.

    Args:
        models: compiled executors by the names of their programs: up to 64 letters, digits, ``-``
            and ``_``. Tensors with the same path in their modules must be the same tensor.
        filename: as in :meth:`PoplarExecutor.save`.

    Returns:
        The path of the file.

    Raises:
        TypeError: ``models`` is not a dictionary of executors.
        poptorch.Error: A name is not allowed, a model is not compiled, two modules have different
            tensors with one path, or the file cannot be written.

    Example:
        >>> import os, poptorch, tempfile, torch
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> net, x, y = torch.nn.Linear(4, 2), torch.ones(3, 4), torch.zeros(3, 2)
        >>> train = poptorch.trainingModel(net, opts.clone(), loss=torch.nn.MSELoss())
        >>> serve = poptorch.inferenceModel(net, opts)
        >>> train.compile(x, y)
        >>> serve.compile(x)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = poptorch.save_bundle({"serve": serve, "train": train},
        ...                                 os.path.join(folder, "net.poptorch"))
        ...     again = poptorch.load_bundle(path)
        >>> _ = again["train"](x, y)  # changes the weights of both
        >>> torch.equal(again["serve"](x), serve(x))
        False
    """
    if not isinstance(models, Mapping) or not models or not all(
            isinstance(model, PoplarExecutor) for model in models.values()):
        raise TypeError(f"[save_bundle] expected a dictionary of names and executors, got "
                        f"{models!r:.80}. Pass {{\"serve\": model}}.")
    for name, model in models.items():
        if not isinstance(name, str) or not PROGRAM_NAME.fullmatch(name):
            raise Error(f"[save_bundle] expected a name of up to 64 letters, digits, - and _, got "
                        f"{name!r:.80}. Change the name of the program.")
        model._saving.programs.require("save_bundle")
    savings = {name: model._saving for name, model in models.items()}
    with standing_still(savings.values(), "save_bundle"):
        return bundle.write({name: saving.contents(True, True) for name, saving in savings.items()},
                            filename)


def load_bundle(filename: str, edit_opts_fn: Callable[[Options], object] | None = None,
                ) -> dict[str, PoplarExecutor]:
    """Makes the executors of a file that :func:`save_bundle` wrote, ready to run.

    The executors share their weights: if one trains them, the others use the new values.

    Args:
        filename: of the file.
        edit_opts_fn: is given the options of each program, see :func:`poptorch.load`.

    Returns:
        The executors by the names of their programs.

    Raises:
        poptorch.Error: As in :func:`poptorch.load`.

    Example:
        >>> import os, poptorch, tempfile, torch
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
        >>> model.compile(torch.ones(3, 4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "net.poptorch")
        ...     again = poptorch.load_bundle(poptorch.save_bundle({"serve": model}, path))
        >>> list(again), again["serve"](torch.ones(3, 4)).shape
        (['serve'], torch.Size([3, 2]))
    """
    with interrupts.deferred():
        files = bundle.read(filename)
    return {name: loaded(file, edit_opts_fn) for name, file in files.items()}


def save_weights(model: torch.nn.Module | PoplarExecutor, filename: str) -> str:
    """Writes the parameters and buffers of a module to a safetensors file.

    The names are those of ``state_dict()``. A tensor with several names is there under each. The
    weights that an executor trained are read back first.

    Args:
        model: a module, or an executor.
        filename: the file's path; a file there is replaced.

    Returns:
        The path of the file.

    Raises:
        poptorch.Error: The state has an entry that is not a dense tensor, or the file cannot be
            written.

    Example:
        >>> import os, poptorch, tempfile, torch
        >>> net, other = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = poptorch.save_weights(net, os.path.join(folder, "net.safetensors"))
        ...     _ = poptorch.load_weights(other, path)
        >>> torch.equal(net.weight, other.weight)
        True
    """
    _check(model, "save_weights")
    path, state = path_of(filename, "save_weights"), model.state_dict()
    for name, value in state.items():
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            raise Error(f"[save_weights] {name} is {type(value).__name__} {value!r:.60}, expected "
                        f"a dense tensor. Save the state_dict() with torch.save.")
    try:
        place.replace(path, lambda file: file.write(tensors.packed(state, is_marked=False)
                                                    or safetensors.torch.save({})))
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise Error(f"[save_weights] cannot write {path}: {problems.why(error)}. Check the "
                    f"path.") from error
    return str(path)


def load_weights(model: torch.nn.Module | PoplarExecutor, filename: str, strict: bool = True
                 ) -> tuple[list[str], list[str]]:
    """Reads the parameters and buffers of a module from a safetensors file.

    The values are converted to the types of the module. A tensor with several names in the module
    needs one of them in the file.

    Args:
        model: a module; or an executor, whose device gets the values, too.
        filename: of a file as :func:`save_weights` and other libraries write it.
        strict: whether the names of the file and of the module must be the same, default True.

    Returns:
        What ``load_state_dict`` returns: the missing and the unexpected names.

    Raises:
        poptorch.Error: The file cannot be read.
        RuntimeError: A shape differs; or, with ``strict``, a name is missing or unexpected.

    Example:
        >>> import os, poptorch, tempfile, torch
        >>> net, other = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = poptorch.save_weights(net, os.path.join(folder, "net.safetensors"))
        ...     poptorch.load_weights(other, path)
        <All keys matched successfully>
    """
    _check(model, "load_weights")
    path = path_of(filename, "load_weights")
    try:
        place.checked_status(path, "read")
        found = safetensors.torch.load_file(path)
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise Error(f"[load_weights] cannot read {path}: {problems.why(error)}. Pass a "
                    f"safetensors file.") from error
    first: dict[int, str] = {}
    own = model.state_dict(keep_vars=True)
    for name, value in own.items():
        if name in found:
            first.setdefault(id(value), name)
    tied = {name: found[first[id(value)]] for name, value in own.items()
            if name not in found and id(value) in first}
    return model.load_state_dict({**found, **tied}, strict)


def _check(model, where: str) -> None:
    if not isinstance(model, PoplarExecutor):
        check_module(model, where)
