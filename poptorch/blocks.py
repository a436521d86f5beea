"""Blocks: parts of a model that are placed on an IPU together.

While ``forward`` is captured each recorded operation takes the block that is current; outside of
a capture blocks do nothing.
"""

import functools
import threading

import torch

from poptorch._capture.context import is_capturing
from poptorch.errors import Error


class _State(threading.local):
    current = None
    next_auto_id = 0


_state = _State()


def current() -> tuple[str, int | None] | None:
    """``(user_id, ipu_id)`` of the current block of this thread, None outside of all blocks."""
    return _state.current


def reset() -> None:
    """Leaves all blocks and restarts the numbering."""
    _state.current = None
    _state.next_auto_id = 0


def _annotation(user_id, ipu_id):
    if user_id is None:
        user_id = _state.next_auto_id
        _state.next_auto_id += 1
    return str(user_id), ipu_id


class Block:
    """A context manager: what is computed inside belongs to one block.

    Args:
        user_id: name of the block; blocks of one name are one block. None numbers them.
        ipu_id: index of the IPU in the device, at least 0; None leaves it to the strategy.

    Example:
        >>> import poptorch
        >>> with poptorch.Block("encoder", ipu_id=0):
        ...     pass
    """

    def __init__(self, user_id: str | int | None = None, ipu_id: int | None = None):
        self._user_id = user_id
        self._ipu_id = ipu_id
        self._outer = []

    def __enter__(self):
        self._outer.append(_state.current)
        Block.start(self._user_id, self._ipu_id)
        return self

    def __exit__(self, *exception):
        outer = self._outer.pop()
        if is_capturing():
            _state.current = outer

    @staticmethod
    def start(user_id: str | int | None = None, ipu_id: int | None = None) -> None:
        """Begins a block that lasts until the next one begins.

        Args:
            user_id, ipu_id: as in :class:`Block`.
        """
        if is_capturing():
            _state.current = _annotation(user_id, ipu_id)

    @staticmethod
    def useAutoId() -> None:
        """Restarts the numbers of blocks without a ``user_id``; call it first in ``forward``."""
        _state.next_auto_id = 0


def BlockFunction(user_id: str | int | None = None, ipu_id: int | None = None):
    """A decorator: what the function computes belongs to one block.

    Args:
        user_id, ipu_id: as in :class:`Block`.

    Example:
        >>> import poptorch
        >>> @poptorch.BlockFunction("decoder", ipu_id=1)
        ... def decode(x):
        ...     return x + 1
    """

    def decorator(function):
        @functools.wraps(function)
        def in_block(*args, **kwargs):
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return in_block

    return decorator


class _BlockMixin:
    """What the class of an annotated module adds to the class it had."""

    def __call__(self, *args, **kwargs):
        Block.start(self._user_id, self._ipu_id)
        return super().__call__(*args, **kwargs)

    def __reduce_ex__(self, protocol):
        # The class exists in this process only: pickles and copies annotate a plain module.
        plain_class = type(self).__mro__[2]
        plain = plain_class.__new__(plain_class)
        plain.__dict__.update(self.__dict__)
        user_id, ipu_id = plain.__dict__.pop("_user_id"), plain.__dict__.pop("_ipu_id")
        return BeginBlock, (plain, user_id, ipu_id)


@functools.cache
def _block_class(cls: type) -> type:
    members = {"__module__": cls.__module__, "__doc__": cls.__doc__,
               "__qualname__": cls.__qualname__}
    return type(cls.__name__, (_BlockMixin, cls), members)


class _BlockCallable:
    """A function that begins a block when it is called."""

    def __init__(self, function, user_id, ipu_id):
        self._function = function
        self._user_id = user_id
        self._ipu_id = ipu_id

    def __call__(self, *args, **kwargs):
        Block.start(self._user_id, self._ipu_id)
        return self._function(*args, **kwargs)


def BeginBlock(layer_to_call, user_id: str | int | None = None, ipu_id: int | None = None):
    """Begins a block whenever the module is called; it lasts until the next one begins.

    Args:
        layer_to_call: a module, which is changed in place; or a function.
        user_id, ipu_id: as in :class:`Block`.

    Returns:
        The same module; for a function, a callable that does as it does.

    Raises:
        poptorch.Error: The module begins a block already.

    Example:
        >>> import poptorch, torch
        >>> layer = poptorch.BeginBlock(torch.nn.Linear(2, 2), "first", ipu_id=0)
    """
    if not isinstance(layer_to_call, torch.nn.Module):
        return _BlockCallable(layer_to_call, user_id, ipu_id)
    if isinstance(layer_to_call, _BlockMixin):
        raise Error(
            f"[BeginBlock] module has already been assigned to a block: user_id="
            f"{layer_to_call._user_id!r}, ipu_id={layer_to_call._ipu_id!r}; now user_id="
            f"{user_id!r}, ipu_id={ipu_id!r}. Call poptorch.removeBlocks(module) first.")
    layer_to_call._user_id = user_id
    layer_to_call._ipu_id = ipu_id
    layer_to_call.__class__ = _block_class(type(layer_to_call))
    return layer_to_call


def removeBlocks(module: torch.nn.Module) -> None:
    """Undoes :func:`BeginBlock` for a module and all modules inside it.

    Args:
        module: the outermost module.

    Raises:
        poptorch.Error: ``module`` is not a module.
    """
    if not isinstance(module, torch.nn.Module):
        raise Error(f"[removeBlocks] expected a torch.nn.Module but got {type(module).__name__}. "
                    f"Pass the model itself.")
    for part in module.modules():
        if isinstance(part, _BlockMixin):
            part.__class__ = type(part).__mro__[2]
            del part._user_id, part._ipu_id
