"""The class of a module that begins a block."""

import functools

import torch
from torch.nn.utils import parametrize

from poptorch._annotations import block_uses
from poptorch._base import capture_context
from poptorch._base.module_subclass import OwnClass, derived, new, plain_class, set_class

_IDS = ("_user_id", "_ipu_id")


class _BlockMixin(OwnClass):
    """What the class of an annotated module adds to the class it had."""

    def __call__(self, *args, **kwargs):
        if capture_context.is_capturing() and begins_block(self):
            block_uses.begin(self._user_id, self._ipu_id, layer=self)
        result = super().__call__(*args, **kwargs)
        if not isinstance(self, _BlockMixin):  # a lazy module becomes one of another class
            _derive(self)
        return result

    def __reduce_ex__(self, protocol):
        # The class exists in this process only: pickles and copies are made of the plain one.
        function, arguments, *rest = super().__reduce_ex__(protocol)
        own, plain = type(self), plain_class(type(self))
        function, *arguments = (plain if part is own else part for part in (function, *arguments))
        if begins_block(self):
            function, arguments = rebuilt, (function, arguments, self._user_id, self._ipu_id)
        elif function.__name__ == "__newobj__":  # which insists on the class of the object
            function = new
        return function, tuple(arguments), *rest


def begins_block(module: torch.nn.Module) -> bool:
    """Whether a module was annotated."""
    # A part that a module makes of its own class, as a slice of a Sequential, begins none.
    return isinstance(module, _BlockMixin) and "_ipu_id" in vars(module)


def annotate(module: torch.nn.Module, user_id: str | int | None, ipu_id: int | None) -> None:
    """Makes a module begin a block."""
    vars(module).update(zip(_IDS, (user_id, ipu_id)))
    if not isinstance(module, _BlockMixin):
        _derive(module)


def remove(module: torch.nn.Module) -> None:
    """Undoes :func:`annotate`."""
    if not isinstance(module, _BlockMixin):
        return
    for name in _IDS:
        vars(module).pop(name, None)
    cls = type(module)
    if cls.__bases__[0] is _BlockMixin:  # else there is a subclass of it, which does no harm
        set_class(module, cls.__bases__[1])


def rebuilt(function, arguments, user_id: str | int | None, ipu_id: int | None):
    """What a pickle of a module that begins a block starts with."""
    module = function(*arguments)
    annotate(module, user_id, ipu_id)
    return module


def _derive(module: torch.nn.Module) -> None:
    cls = type(module)
    if parametrize.is_parametrized(module) and vars(cls).keys() >= module.parametrizations.keys():
        # Torch changes this class and takes it away again, and it is of this module alone.
        cls.__bases__ = _block_class(cls.__bases__[0]),
    else:
        set_class(module, _block_class(cls))


@functools.cache
def _block_class(cls: type) -> type:
    return derived(cls, {}, _BlockMixin)
