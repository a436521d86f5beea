"""Gives a user's module a class that reads the weights back before anybody looks at them."""

import weakref

import torch

from poptorch._executor import watched
from poptorch._executor.weights import ModuleWeights

_MARK = "_poptorch_instrumented"


def is_instrumented(module: torch.nn.Module) -> bool:
    """Whether :func:`instrument` was applied to ``module`` and not undone."""
    return _MARK in type(module).__dict__


def instrument(module: torch.nn.Module) -> None:
    """Replaces the module's class by a subclass whose readers first bring the weights to the host.

    The module stays the same object, with the same attributes; pickles and copies of it are of
    the original class.
    """
    module.__class__ = _subclass(type(module))
    watched.watch(module)


def remove(module: torch.nn.Module) -> None:
    """Gives the module its own class back."""
    if is_instrumented(module):
        watched.unwatch(module)
        module.__class__ = type(module).__bases__[0]


# Modules that unwrap() took the class from.
_unwrapped: "weakref.WeakSet" = weakref.WeakSet()


def unwrap(module: torch.nn.Module) -> None:
    """Gives a wrapped module its own class back, until :func:`rewrap`; others stay as they are.

    For what looks at the class of a module: saving, generation.
    """
    if is_instrumented(module):
        ModuleWeights.of(module).bring_to_host()
        remove(module)
        _unwrapped.add(module)


def rewrap(module: torch.nn.Module) -> None:
    """Undoes :func:`unwrap`; modules that it did not change stay as they are."""
    if module in _unwrapped:
        _unwrapped.remove(module)
        instrument(module)


_classes: dict = {}


def _subclass(cls: type) -> type:
    if cls not in _classes:
        members = {_MARK: True, "__module__": cls.__module__, "__doc__": cls.__doc__,
                   "__qualname__": cls.__qualname__, "__getattr__": _getattr,
                   "__reduce_ex__": _reduce_ex, "destroy": _destroy}
        for name in ("named_parameters", "named_buffers", "state_dict", "named_modules",
                     "load_state_dict", "_apply", "__call__"):
            members[name] = _reader(cls, name)
        _classes[cls] = type(cls.__name__, (cls,), members)
    return _classes[cls]


def _reader(cls: type, name: str):
    original = getattr(cls, name)

    def read(self, *args, **kwargs):
        ModuleWeights.of(self).bring_to_host()
        return original(self, *args, **kwargs)

    read.__name__, read.__doc__ = name, original.__doc__
    return read


def _getattr(self, name: str):
    # Parameters, buffers and children are found here, as torch.nn.Module keeps them in tables.
    ModuleWeights.of(self).bring_to_host()
    return type(self).__bases__[0].__getattr__(self, name)


def _reduce_ex(self, protocol):
    ModuleWeights.of(self).bring_to_host()
    cls = type(self).__bases__[0]
    if cls.__reduce_ex__ is not object.__reduce_ex__ or cls.__reduce__ is not object.__reduce__:
        return cls.__reduce_ex__(self, protocol)
    # Not copyreg.__newobj__, which insists that the object is of the class it names.
    return new, (cls,), self.__getstate__()


def new(cls: type):
    """An object of ``cls`` without attributes: what a pickle begins with."""
    return cls.__new__(cls)


def _destroy(self) -> None:
    """Reads the weights back and undoes the wrapping, so that the module can be wrapped again."""
    ModuleWeights.of(self).bring_to_host()
    remove(self)
