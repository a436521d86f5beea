"""Blocks: parts of a model that are placed on an IPU together.

While ``forward`` is captured each recorded operation takes the block that is current; outside of
a capture blocks do nothing. Which stage and IPU a block is given is the execution strategy's
business (:mod:`poptorch.strategies`).
"""

import functools
from collections.abc import Callable
from typing import Any, Self, TypeVar

import torch

from poptorch._annotations import annotations, block_class, block_uses
from poptorch._annotations.stages import block_name
from poptorch._base import capture_context
from poptorch._base.checks import Text, at_least
from poptorch._base.logging import logger
from poptorch.errors import Error


def check_ids(where: str, user_id, ipu_id) -> None:
    """Checks the name and the IPU of a block.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: The name is empty, or the IPU negative.
    """
    if user_id is not None:
        block_name(where, user_id)
    if ipu_id is not None:
        at_least(0, ipu_id, f"{where} ipu_id")


_Layer = TypeVar("_Layer", bound=Callable[..., Any])


class Block:
    """A context manager: what is computed inside belongs to one block.

    Args:
        user_id: name of the block; blocks of one name are one block. None: the number of the
            block among those without a name.
        ipu_id: index of the IPU in the device, at least 0; None leaves it to the strategy.

    Raises:
        TypeError: ``user_id`` is no str or int, or ``ipu_id`` no int.
        ValueError: ``user_id`` is empty, or ``ipu_id`` negative.

    Example:
        >>> import poptorch
        >>> with poptorch.Block("encoder", ipu_id=0):
        ...     pass
    """

    def __init__(self, user_id: str | int | None = None, ipu_id: int | None = None):
        check_ids("Block", user_id, ipu_id)
        self._user_id = user_id
        self._ipu_id = ipu_id
        self._outer = []

    def __enter__(self) -> Self:
        is_seen = capture_context.is_capturing()
        self._outer.append(block_uses.begin(self._user_id, self._ipu_id, True) if is_seen else None)
        return self

    def __exit__(self, *exception: object) -> None:
        outer = self._outer.pop()
        if capture_context.is_capturing():
            annotations.end("block", outer)

    @staticmethod
    def start(user_id: str | int | None = None, ipu_id: int | None = None) -> None:
        """Begins a block that lasts until the next one begins.

        Args:
            user_id, ipu_id: as in :class:`Block`.

        Raises:
            TypeError, ValueError: As in :class:`Block`.

        Example:
            >>> import poptorch
            >>> poptorch.Block.start("head", ipu_id=1)
        """
        check_ids("Block.start", user_id, ipu_id)
        if capture_context.is_capturing():
            block_uses.begin(user_id, ipu_id)

    @staticmethod
    def useAutoId() -> None:
        """Restarts the numbers of blocks without a ``user_id``; call it first in ``forward``.

        Example:
            >>> import poptorch
            >>> poptorch.Block.useAutoId()
            >>> with poptorch.Block():  # its user_id is "0"
            ...     pass
        """
        block_uses.restart_numbers()


class _Annotating:
    """A context manager: what is computed inside is annotated with a value of a kind."""

    def __init__(self, kind: str, value: Any):
        self._kind, self._value = kind, value
        self._entered = []

    def __enter__(self) -> Self:
        self._entered.append(annotations.entered(self._kind, self._value))
        self._entered[-1].__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._entered.pop().__exit__(*exception)


class NameScope(_Annotating):
    """A context manager: a prefix for the names of what is computed inside.

    The IR text and the reports show it before the module path, as ``prefix/encoder.layers.0``.
    Scopes may be nested.

    Args:
        name: the prefix, not empty.

    Raises:
        TypeError: ``name`` is not a str.
        ValueError: ``name`` is empty.

    Example:
        >>> import poptorch
        >>> with poptorch.NameScope("encoder"):
        ...     pass
    """

    def __init__(self, name: str):
        super().__init__("scope", (Text()(name, "NameScope name"),))


class Attribute(_Annotating):
    """A context manager: hints for what is computed inside, by the names of the back end.

    The hints of other PopTorch versions are about how their back end shares code among like
    parts of a program. There is no such sharing here, so they have no effect; a warning is
    logged once. The IR text shows them, as ``attributes=[["__outline", [["layer", "a"]]]]``; like
    operations with unlike hints are not computed once for both.

    Args:
        attributes: hints by name: numbers, strings, or dictionaries and lists of them; of anything
            else its ``repr`` is shown. Inside of another Attribute, hints of its names replace
            its own.

    Raises:
        TypeError: There are none.

    Example:
        >>> import poptorch
        >>> with poptorch.Attribute(__outline={"layer": "embedding"}):
        ...     pass
    """

    def __init__(self, **attributes: Any):
        if not attributes:
            raise TypeError("[Attribute] expected hints as keywords, got none. Give some, such as "
                            "__outline={...}.")
        _warn_of_hints()
        super().__init__("attributes", attributes)


@functools.cache
def _warn_of_hints() -> None:
    logger.warning("[Attribute] hints change nothing here: like parts of a program are not shared.")


def BlockFunction(user_id: str | int | None = None,
                  ipu_id: int | None = None) -> Callable[[_Layer], _Layer]:
    """A decorator: what the function computes belongs to one block.

    Args:
        user_id, ipu_id: as in :class:`Block`.

    Raises:
        TypeError, ValueError: As in :class:`Block`.

    Example:
        >>> import poptorch
        >>> @poptorch.BlockFunction("decoder", ipu_id=1)
        ... def decode(x):
        ...     return x + 1
    """

    check_ids("BlockFunction", user_id, ipu_id)

    def decorator(function):
        @functools.wraps(function)
        def in_block(*args, **kwargs):
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return in_block

    return decorator


class _BlockCallable:
    """A function that begins a block when it is called."""

    def __init__(self, function, user_id, ipu_id):
        self._function = function
        self._user_id = user_id
        self._ipu_id = ipu_id

    def __call__(self, *args, **kwargs):
        Block.start(self._user_id, self._ipu_id)
        return self._function(*args, **kwargs)


def BeginBlock(layer_to_call: _Layer, user_id: str | int | None = None,
               ipu_id: int | None = None) -> _Layer:
    """Begins a block whenever the module is called; it lasts until the next one begins.

    Args:
        layer_to_call: a module, which is changed in place; or a function.
        user_id, ipu_id: as in :class:`Block`.

    Returns:
        The same module; for a function, a callable that does as it does.

    Raises:
        TypeError: ``layer_to_call`` can not be called; or as in :class:`Block`.
        ValueError: As in :class:`Block`.
        poptorch.Error: The module begins a block already.

    Example:
        >>> import poptorch, torch
        >>> layer = poptorch.BeginBlock(torch.nn.Linear(2, 2), "first", ipu_id=0)
    """
    check_ids("BeginBlock", user_id, ipu_id)
    if not callable(layer_to_call):
        raise TypeError(f"[BeginBlock] layer_to_call is expected to be a module or a function, "
                        f"got {type(layer_to_call).__name__} {layer_to_call!r}.")
    if not isinstance(layer_to_call, torch.nn.Module):
        return _BlockCallable(layer_to_call, user_id, ipu_id)
    if block_class.begins_block(layer_to_call):
        raise Error(
            f"[BeginBlock] module has already been assigned to a block: user_id="
            f"{layer_to_call._user_id!r}, ipu_id={layer_to_call._ipu_id!r}; now user_id="
            f"{user_id!r}, ipu_id={ipu_id!r}. Call poptorch.removeBlocks(module) first.")
    for name in ("_user_id", "_ipu_id"):
        if name in vars(layer_to_call) or hasattr(type(layer_to_call), name):
            raise Error(f"[BeginBlock] {type(layer_to_call).__name__} has an attribute {name} of "
                        f"its own, {getattr(layer_to_call, name)!r}, and poptorch keeps the "
                        f"block's there. Give it another name, or use poptorch.Block in forward.")
    block_class.annotate(layer_to_call, user_id, ipu_id)
    return layer_to_call


def removeBlocks(module: torch.nn.Module) -> None:
    """Undoes :func:`BeginBlock` for a module and all modules inside it.

    Args:
        module: the outermost module.

    Raises:
        poptorch.Error: ``module`` is not a module.

    Example:
        >>> import poptorch, torch
        >>> net = poptorch.BeginBlock(torch.nn.ReLU(), "first")
        >>> poptorch.removeBlocks(net)
    """
    if not isinstance(module, torch.nn.Module):
        raise Error(f"[removeBlocks] expected a torch.nn.Module but got {type(module).__name__}. "
                    f"Pass the model itself.")
    for part in module.modules():
        block_class.remove(part)


def module_repr(module: torch.nn.Module) -> str:
    """A module as ``repr`` shows it, with the blocks that :func:`BeginBlock` put on its parts.

    Args:
        module: the outermost module.

    Returns:
        The text of ``repr(module)``; before each part that begins a block stands
        ``BeginBlock(user_id=..., ipu_id=...)``.

    Raises:
        TypeError: ``module`` is not a module.

    Example:
        >>> import poptorch, torch
        >>> model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
        >>> _ = poptorch.BeginBlock(model[1], ipu_id=1)
        >>> print(poptorch.module_repr(model))
        Sequential(
          (0): ReLU()
          (1): BeginBlock(user_id=None, ipu_id=1) Tanh()
        )
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"[module_repr] expected a torch.nn.Module, got "
                        f"{type(module).__name__} {module!r}.")
    text = repr(module)
    parts = [(name, module_repr(part)) for name, part in module.named_children()]
    inside = [inner for inner in module.modules() if inner is not module]
    if any(map(block_class.begins_block, inside)):
        lines = [*filter(None, module.extra_repr().split("\n"))]
        lines += [f"({name}): {_indented(part)}" for name, part in parts]
        text = f"{module._get_name()}(\n  " + "\n  ".join(lines) + "\n)"
    if not block_class.begins_block(module):
        return text
    return f"BeginBlock(user_id={module._user_id!r}, ipu_id={module._ipu_id!r}) {text}"


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")
