"""Gives a user's module a class that reads the weights back before they are read."""

import weakref

import torch

from poptorch._base.module_subclass import derived, new, set_class
from poptorch._weights import watched
from poptorch._weights.store import STORE

_MARK = "_poptorch_instrumented"

# For each wrapped module, the store's number of changes when the host was found up to date.
_checked: "weakref.WeakKeyDictionary[torch.nn.Module, int]" = weakref.WeakKeyDictionary()

_wrapped: "weakref.WeakSet[torch.nn.Module]" = weakref.WeakSet()


def is_instrumented(module: torch.nn.Module) -> bool:
    """Whether :func:`instrument` was applied to ``module`` and not undone."""
    return module in _wrapped


def instrument(module: torch.nn.Module) -> None:
    """Replaces the module's class by a subclass whose readers first bring the weights to the host.

    The module stays the same object, with the same attributes; pickles and copies of it are of the
    original class. Where that was done before, only tensors that it did not have then are watched
    from now on.
    """
    if not is_instrumented(module):
        set_class(module, _subclass(type(module)))
        _wrapped.add(module)
    watched.watch(module)


def remove(module: torch.nn.Module) -> None:
    if not is_instrumented(module):
        return
    watched.unwatch(module)
    _wrapped.discard(module)
    cls, ours = type(module), getattr(type(module), _MARK, None)
    if ours is None:  # it was given another class
        return
    if cls is ours:
        set_class(module, _inner_class(cls))
    else:  # there is a subclass of ours, as parametrizations do
        cls.__bases__ = tuple(map(_inner_class, cls.__bases__))


def _inner_class(cls: type) -> type:
    """The class of a module before :func:`instrument`; a block's stays."""
    return cls.__bases__[0] if _MARK in cls.__dict__ else cls


# Modules that unwrap() took the class from.
_unwrapped: "weakref.WeakSet" = weakref.WeakSet()


def unwrap(module: torch.nn.Module) -> None:
    """Gives a wrapped module its own class back, until :func:`rewrap`, for code that looks at the
    class: saving, generation. Other modules stay as they are."""
    if is_instrumented(module):
        bring_to_host(module)
        remove(module)
        _unwrapped.add(module)


def rewrap(module: torch.nn.Module) -> None:
    """Undoes :func:`unwrap`; modules that it did not change stay as they are."""
    if module in _unwrapped:
        _unwrapped.remove(module)
        instrument(module)


def bring_to_host(module: torch.nn.Module) -> None:
    """Brings the tensors of a module up to date."""
    is_checked = _checked.get(module) == STORE.changes
    if not is_checked and not STORE.pull_to_host(watched.tensors_of(module)):
        _checked[module] = STORE.changes


_classes: dict = {}


def _subclass(cls: type) -> type:
    if cls not in _classes:
        members = {"__getattr__": _getattr_of(cls), "__reduce_ex__": _reduce_ex_of(cls),
                   "destroy": _destroy}
        for name in ("named_parameters", "named_buffers", "state_dict", "named_modules",
                     "load_state_dict", "_apply", "__call__"):
            members[name] = _reader(cls, name)
        if hasattr(cls, "__deepcopy__"):
            members["__deepcopy__"] = _deepcopy_of(cls)
        made = _classes[cls] = derived(cls, members)
        setattr(made, _MARK, made)
    return _classes[cls]


def _reader(cls: type, name: str):
    original = getattr(cls, name)

    def read(self, *args, **kwargs):
        bring_to_host(self)
        return original(self, *args, **kwargs)

    read.__name__, read.__doc__ = name, original.__doc__
    return read


_TABLES = frozenset({"_parameters", "_buffers", "_modules"})


def _getattr_of(cls: type):
    def find(self, name: str):
        # Parameters, buffers and children are found here, as torch.nn.Module keeps them in tables.
        # The tables themselves are, too, of a traced module, where bringing looks for tensors.
        if name not in _TABLES:
            bring_to_host(self)
        return cls.__getattr__(self, name)

    return find


def _reduce_ex_of(cls: type):
    def reduce(self, protocol):
        bring_to_host(self)
        if cls.__reduce_ex__ is not object.__reduce_ex__ or \
                cls.__reduce__ is not object.__reduce__ or _inner_class(type(self)) is not cls:
            return cls.__reduce_ex__(self, protocol)
        # Not copyreg.__newobj__, which insists that the object is of the class it names.
        return new, (cls,), self.__getstate__()

    return reduce


def _deepcopy_of(cls: type):
    def deepcopy(self, memo):
        bring_to_host(self)
        copied = cls.__deepcopy__(self, memo)
        if type(copied) is _classes[cls]:
            set_class(copied, cls)
        return copied

    return deepcopy


def _destroy(self) -> None:
    bring_to_host(self)
    remove(self)
