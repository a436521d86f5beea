"""What does nothing in place of each public name, so that the name's test must fail.

A setter, and a method that gives its object back, returns the object; a decorator returns what it
is given, `BeginBlock` its layer. A property and every other function return None; what is no
function becomes None. A class loses its `__init__`, so that objects have no state; one that is a
context neither begins nor ends anything, one with abstract methods asks for none; the class that
marks optimizers marks none. All members of an enumeration become its first one.
"""

import enum
import inspect
from collections.abc import Callable
from contextlib import nullcontext

import poptorch
from tests.registry.effects import setters, test_of
from tests.registry.names import NAMES


def _first(first, *_, **__):
    return first


def _none(*_, **__):
    return None


def _decorator(*_, **__):
    return _first


def _context(*_, **__):
    return nullcontext()


# What the kind of thing does not tell.
_OWN = {"BeginBlock": _first, "BlockFunction": _decorator, "profiling.Channel.tracepoint": _context,
        "optim.Optimizer": type("Nothing", (), {})}


def tests() -> dict[str, str]:
    """The test of every public name and option setter, as pytest names it."""
    return {**{name: test_of(name) for name in setters()}, **NAMES}


def owner_of(name: str) -> tuple[object, str]:
    """The class or module that has what a dotted name says, and its name there."""
    *path, last = name.split(".")
    owner = poptorch
    for part in path:
        owner = getattr(owner, part)
        # A group of options: its property returns an object, whose class is meant.
        if isinstance(owner, property):
            owner = owner.fget.__annotations__["return"]
    return owner, last


def put_in_place_of(name: str) -> None:
    """Makes a public name, or an option setter, do nothing in this process."""
    if name in setters():
        kind, method = setters()[name]
        setattr(kind, method, _first)
        return
    owner, last = owner_of(name)
    thing = inspect.getattr_static(owner, last)
    if name in _OWN:
        setattr(owner, last, _OWN[name])
    elif inspect.isclass(thing) and issubclass(thing, enum.Enum):
        _merge_members(thing)
    elif inspect.isclass(thing):
        _empty(thing)
    else:
        setattr(owner, last, _like(thing, owner))


def _like(thing, owner) -> Callable | property | classmethod | staticmethod | None:
    if isinstance(thing, property):
        return property(_none, _none)
    if isinstance(thing, classmethod | staticmethod):
        return type(thing)(_none)
    if not callable(thing):
        return None
    gives = inspect.get_annotations(thing).get("return")
    name = gives if isinstance(gives, str) else getattr(gives, "__name__", "")
    return _first if name == getattr(owner, "__name__", None) else _none


def _merge_members(kind: type[enum.Enum]) -> None:
    first = next(iter(kind))
    for name in kind.__members__:
        kind._member_map_[name] = first
        type.__setattr__(kind, name, first)


def _empty(kind: type) -> None:
    kind.__init__ = _none
    for name in getattr(kind, "__abstractmethods__", ()):
        setattr(kind, name, _none)
    if hasattr(kind, "__enter__"):
        kind.__enter__ = kind.__exit__ = _none
