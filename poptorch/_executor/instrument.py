"""Gives a user's module a class that reads the weights back before anybody looks at them."""

import torch

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


def remove(module: torch.nn.Module) -> None:
    """Gives the module its own class back."""
    if is_instrumented(module):
        module.__class__ = type(module).__bases__[0]


_classes: dict = {}


def _subclass(cls: type) -> type:
    if cls not in _classes:
        members = {_MARK: True, "__module__": cls.__module__, "__doc__": cls.__doc__,
                   "__qualname__": cls.__qualname__, "__getattr__": _getattr,
                   "__reduce_ex__": _reduce_ex, "destroy": _destroy}
        for name in ("named_parameters", "named_buffers", "state_dict", "named_modules",
                     "load_state_dict", "__call__"):
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
    return _new, (cls,), self.__getstate__()


def _new(cls: type):
    return cls.__new__(cls)


def _destroy(self) -> None:
    """Reads the weights back and undoes the wrapping, so that the module can be wrapped again."""
    ModuleWeights.of(self).bring_to_host()
    remove(self)
