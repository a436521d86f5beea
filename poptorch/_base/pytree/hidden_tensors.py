"""Tensors, and other objects, in what is not taken apart."""

import gc
import types
from collections.abc import Callable, Iterator

_NOT_FOLLOWED = (type, types.ModuleType)
_OF_FUNCTION = ("__closure__", "__defaults__", "__kwdefaults__", "__dict__")


def is_among(value, is_wanted: Callable[[object], bool]) -> bool:
    """Whether a wanted object is a value or is reached from it: by attributes, containers, partial
    functions, iterators and variables of functions, to any depth."""
    return any(map(is_wanted, _objects_from(value)))


def reached(value, identities: set[int]) -> set[int]:
    """Which of some objects, given by identity, are reached from a value."""
    return {id(one) for one in _objects_from(value)} & identities


def attributes_with(value, is_wanted: Callable[[object], bool]) -> list[str]:
    """Names of the attributes of an object from which wanted objects are reached."""
    return [name for name, item in getattr(value, "__dict__", {}).items()
            if is_among(item, is_wanted)]


def _objects_from(value) -> Iterator:
    """A value and what is reached from it, each object once."""
    left, seen = [value], {}  # which keeps the objects, so that none has the identity of another
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        yield value
        if not isinstance(value, _NOT_FOLLOWED):
            left += _referents(value)


def _referents(value) -> list:
    if isinstance(value, types.FunctionType):  # not its globals, which lead to all of a program
        return [getattr(value, name, None) for name in _OF_FUNCTION]
    return gc.get_referents(value)
