"""The arguments of ``forward``: in the order of its signature, and as its caller passed them."""

import inspect

import torch

from poptorch._pytree import Structure


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
    """Arguments in the order of the signature as a caller passed them.

    Hooks of the module, a ``__call__`` of its own and functions around ``forward`` see which were
    passed, and how.

    Args:
        module: that is called.
        args, kwargs: all arguments, defaults among them.
        count: how many were passed by position.
        names: of those that were passed by name, in that order.

    Returns:
        Positional and keyword arguments: those that were passed, and defaults that hold tensors,
        as the program has these as inputs.
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
