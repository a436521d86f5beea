"""The arguments of ``forward``: in the order of its signature, and as its caller passed them."""

import inspect

import torch

from poptorch._base.logging import logger
from poptorch._base.pytree.containers import PARSED, Kind, Node
from poptorch._base.pytree.structure import Structure, join_path


class Containers:
    """The containers among the arguments of ``forward``, which are copies of the caller's;
    ``found`` is what ``Structure.paired`` gives."""

    def __init__(self, found: list[tuple]):
        self._found = [(path, part.kind, value, _contents(part.kind, value))
                       for path, part, value in found
                       if path and isinstance(part, Node) and part.kind is not PARSED]

    def warn_of_changes(self) -> None:
        """Warns of parts that ``forward`` has put into containers, or taken out of them."""
        for path, kind, value, before in self._found:
            what = _difference(path, before, _contents(kind, value))
            if what is not None:
                name = type(value).__name__
                logger.warning(
                    "[arguments] forward changes the %s %s: %s. The program has a copy of it, the "
                    "caller's %s stays as it was. Return what is to be in it; changes of its "
                    "tensors in place reach the caller.", name, path, what, name)


def named(module: torch.nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, Structure]:
    """The arguments in the order of the signature, and their structure by name."""
    try:
        given = inspect.signature(module.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        ordered = args, kwargs
    else:
        ordered = given.args, given.kwargs
    return ordered, Structure.of(bound(module, *ordered))[1]


def bound(module: torch.nn.Module, args: tuple, kwargs: dict) -> dict:
    """The arguments by name."""
    try:
        return dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # forward itself will say what is wrong
        return {"args": args, "kwargs": kwargs}


def as_called(module: torch.nn.Module, args: tuple, kwargs: dict, count: int,
              names: tuple[str, ...]) -> tuple[tuple, dict]:
    """Arguments in the order of the signature as a caller passed them, ``count`` by position and
    ``names`` by name.

    Hooks of the module, a ``__call__`` of its own and functions around ``forward`` see which were
    passed. Of the defaults only those that hold tensors are among them: they are inputs of the
    program.
    """
    if count == len(args) and tuple(kwargs) == names:
        return args, kwargs
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())[count:len(args)]
    except (TypeError, ValueError):
        return args, kwargs
    by_name = {p.name: value for p, value in zip(parameters, args[count:])} | kwargs
    given = {name: by_name.pop(name) for name in names}
    given |= {name: value for name, value in by_name.items() if Structure.of(value)[0]}
    if any(p.kind is p.POSITIONAL_ONLY and p.name in given for p in parameters):
        return args, kwargs
    return args[:count], given


def _contents(kind: Kind, value) -> dict:
    """The parts of a container by key."""
    try:
        parts = kind.flatten(value)[0]
    except AttributeError:  # forward has deleted a field
        return {}
    return dict(zip(kind.keys(value, parts), parts))


def _difference(path: str, before: dict, now: dict) -> str | None:
    """What forward did to a container; None: nothing."""
    if before.keys() != now.keys():
        return f"it had the entries {[*before]} and has {[*now]} then"
    replaced = [join_path(path, key) for key, part in now.items() if part is not before[key]]
    return f"it holds other objects then at {', '.join(replaced)}" if replaced else None
