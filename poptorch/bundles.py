"""Files of several programs over one set of weights."""

from collections.abc import Callable, Mapping

from poptorch._base import interrupts
from poptorch._executor.saving import standing_still
from poptorch._files import bundle
from poptorch._files.archive import PROGRAM_NAME
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

    The executors share their weights: what one trains, the others use.

    Args:
        filename: of the file.
        edit_opts_fn: is given the options of each program, see :func:`poptorch.load`.

    Returns:
        The executors by the names of their programs.

    Raises:
        poptorch.Error: As in :func:`poptorch.load`.

    Example:
        See :func:`save_bundle`.
    """
    with interrupts.deferred():
        files = bundle.read(filename)
    return {name: loaded(file, edit_opts_fn) for name, file in files.items()}
