"""Methods and properties of a part, as members of the class that has the part."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

_P, _R = ParamSpec("_P"), TypeVar("_R")
_Method = Callable[Concatenate[Any, _P], _R]


@overload
def forward_to(part: str, member: property) -> property: ...


@overload
def forward_to(part: str, member: _Method[_P, _R]) -> _Method[_P, _R]: ...


def forward_to(part: str, member: Any) -> Any:
    """A member that does what that of a part does, with its signature and docstring.

    Where the part returns itself, the object that has it is returned.

    Args:
        part: the attribute that has the part.
        member: a method or property of the part's class.
    """
    if isinstance(member, property):
        return property(*(function and _forwarding(part, function)
                          for function in (member.fget, member.fset)), doc=member.__doc__)
    return _forwarding(part, member)


def _forwarding(part: str, function: Callable) -> Callable:
    @functools.wraps(function)
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        own = getattr(self, part)
        result = function(own, *args, **kwargs)
        return self if result is own else result

    return forward
