"""Functions of the user that run around each compilation."""

from collections import OrderedDict
from collections.abc import Callable

from torch.utils.hooks import RemovableHandle

_before: OrderedDict[int, Callable[[], None]] = OrderedDict()
_after: OrderedDict[int, Callable[[], None]] = OrderedDict()


def registerPreCompileHook(hook: Callable[[], None]) -> RemovableHandle:
    """Has a function called before each compilation of any model, from now on.

    Hooks are called in the order in which they were registered. A model that comes from a file is
    not compiled.

    Args:
        hook: takes nothing; what it returns is ignored, what it raises ends the compilation.

    Returns:
        A handle; its ``remove()`` takes the hook away again.

    Raises:
        RuntimeError: ``hook`` is not callable.

    Example:
        >>> import poptorch, torch
        >>> handle = poptorch.registerPreCompileHook(lambda: print("compiling"))
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> poptorch.inferenceModel(torch.nn.Linear(4, 2), opts).compile(torch.ones(3, 4))
        compiling
        >>> handle.remove()
    """
    return _register(_before, hook, "registerPreCompileHook")


def registerPostCompileHook(hook: Callable[[], None]) -> RemovableHandle:
    """Has a function called after each successful compilation of any model, from now on.

    Args:
        hook: as for :func:`registerPreCompileHook`.

    Returns:
        A handle; its ``remove()`` takes the hook away again.

    Raises:
        RuntimeError: ``hook`` is not callable.

    Example:
        >>> import poptorch, torch
        >>> handle = poptorch.registerPostCompileHook(lambda: print("compiled"))
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> poptorch.inferenceModel(torch.nn.Linear(4, 2), opts).compile(torch.ones(3, 4))
        compiled
        >>> handle.remove()
    """
    return _register(_after, hook, "registerPostCompileHook")


def _register(table: OrderedDict, hook, name: str) -> RemovableHandle:
    if not callable(hook):
        raise RuntimeError(f"[{name}] the hook must be callable, got {hook!r} of "
                           f"{type(hook).__name__}. Pass a function without parameters.")
    handle = RemovableHandle(table)
    table[handle.id] = hook
    return handle


def before_compile() -> None:
    """Calls the hooks of :func:`registerPreCompileHook`."""
    for hook in list(_before.values()):
        hook()


def after_compile() -> None:
    """Calls the hooks of :func:`registerPostCompileHook`."""
    for hook in list(_after.values()):
        hook()
