"""Methods and properties of a part, as members of the class that has the part."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

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
