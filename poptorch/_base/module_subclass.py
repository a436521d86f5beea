"""Classes that poptorch derives from the class of a module, for that module alone."""

from typing import Any

MARK = "_poptorch_own_class"


class OwnClass:
    """A first base of such a class: classes of users are not told of it by ``__init_subclass__``,
    which may ask for keywords, or enter each subclass in a table."""

    def __init_subclass__(cls, **kwargs: Any):
        if MARK not in vars(cls):
            super().__init_subclass__(**kwargs)


def derived(cls: type, members: dict[str, Any], mixin: type[OwnClass] | None = None) -> type:
    """A subclass of ``cls`` that looks like it; and of ``mixin``, if there is one."""
    like = {"__module__": cls.__module__, "__doc__": cls.__doc__, "__qualname__": cls.__qualname__,
            MARK: True}
    bases = (cls,) if mixin is None else (mixin, cls)
    needed = bases if issubclass(bases[0], OwnClass) else (OwnClass, cls)
    made = type(cls.__name__, needed, {**like, **members})
    if needed is not bases:
        made.__bases__ = bases
    return made


def plain_class(cls: type) -> type:
    """The class of a module before poptorch changed it."""
    while MARK in vars(cls):
        cls = cls.__bases__[-1]
    return cls


def set_class(module: Any, cls: type) -> None:
    """Gives a module another class."""
    # Not by the module's own __setattr__: a traced one sets everything on another module.
    object.__setattr__(module, "__class__", cls)


def new(cls: type, *args: Any):
    """An object of ``cls`` without attributes: what a pickle begins with."""
    return cls.__new__(cls, *args)
