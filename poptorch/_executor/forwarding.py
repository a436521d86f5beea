"""Methods and properties of a part, as members of the class that has the part."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from poptorch._base.checks import near_names, public_names
from poptorch.errors import Error

_P = ParamSpec("_P")
_R = TypeVar("_R")


def forward_to(part: str, method: Callable[Concatenate[Any, _P], _R]) \
        -> Callable[Concatenate[Any, _P], _R]:
    """A method that does what that of a part does, with its signature and docstring.

    Where the part returns itself, the object that has it is returned.
    """
    @functools.wraps(method)
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        own = getattr(self, part)
        result = method(own, *args, **kwargs)
        return self if result is own else result

    return forward


def forward_property(part: str, member: Any) -> Any:
    """A property that reads and writes that of a part, with its docstring."""
    read, write = (function and forward_to(part, function)
                   for function in (member.fget, member.fset))
    return property(read, write, doc=member.__doc__)


def module_attribute(module: torch.nn.Module, name: str, executor: type) -> Any:
    """An attribute of the wrapped module; what would move its tensors is refused when called. The
    error for an unknown name suggests members of ``executor``."""
    try:
        found = getattr(module, name)
    except AttributeError as error:
        near = near_names(name, public_names(dir(executor)))
        if not near or repr(name) not in str(error):  # one of the user's property, for example
            raise
        raise AttributeError(f"{error}.{near}") from None
    return functools.partial(_moved, found, name) if name in ("cuda", "to") else found


def _moved(method: Callable, name: str, *args: Any, **kwargs: Any) -> Any:
    devices = [str(value) for value in (*args, *kwargs.values())
               if isinstance(value, (str, torch.device))]
    if name == "cuda" or any(not device.startswith(("cpu", "meta")) for device in devices):
        raise Error(f"[{name}] a wrapped model runs on the IPU Model and takes its weights from "
                    f"CPU memory, so it cannot be moved to {devices[0] if devices else 'cuda'}. "
                    f"Remove the call, and pass tensors on the CPU.")
    return method(*args, **kwargs)
