"""Nested arguments and results: taken apart into leaves, and put together again."""

import copy
import dataclasses
from collections.abc import Callable

import torch

from poptorch import _schema as schema
from poptorch.custom_args import parser_of
from poptorch.errors import Error

_CONSTANT, _TENSOR, _SEQUENCE, _MAPPING, _OBJECT, _CUSTOM = range(6)


class Structure:
    """The shape of a nested value: sequences, dictionaries, dataclasses and objects of classes
    that have a parser (see :func:`poptorch.registerCustomArgParser`) around leaves.

    Tensors are the leaves that change between calls; all else is kept as it was.

    Attributes:
        paths: a readable name of each tensor leaf, in order.
    """

    def __init__(self, root, paths: list[str]):
        self._root = root
        self.paths = paths

    @classmethod
    def of(cls, tree, name: str = "") -> tuple[list, "Structure"]:
        """The tensor leaves of ``tree`` and its structure; ``name`` is put before each path."""
        leaves, paths = [], []
        try:
            root = _describe(tree, name, leaves, paths)
        except RecursionError:
            raise Error(f"[capture] {name or 'a result'} is a {type(tree).__name__} that holds "
                        f"itself, or is nested too deeply to be taken apart. Use lists, tuples and "
                        f"dictionaries around tensors.") from None
        return leaves, cls(root, paths)

    def unflatten(self, tensors: list):
        """The nested value with ``tensors`` in place of its tensor leaves."""
        return _rebuild(self._root, iter(tensors))

    def to_data(self) -> list:
        """This as nested lists of classes and constants, without the containers themselves."""
        return [_plain(self._root), self.paths]

    @classmethod
    def from_data(cls, data: list) -> "Structure":
        """The structure that :meth:`to_data` described."""
        schema.check(tuple(data), (list, [str]), "outputs")
        root, paths = data
        filled = cls(_filled(root), paths)
        if _count_tensors(filled._root) != len(paths):
            raise ValueError(f"outputs has {len(paths)} names for {_count_tensors(filled._root)} "
                             f"tensors")
        return filled

    def check_constants(self, check: Callable) -> None:
        """Calls ``check`` with each value that is neither a container nor a tensor."""
        _check_constants(self._root, check)


def kind_of(value) -> int:
    """How a value is taken apart."""
    if isinstance(value, torch.Tensor):
        return _TENSOR
    if parser_of(value) is not None:
        return _CUSTOM
    if isinstance(value, dict):
        return _MAPPING
    if isinstance(value, (list, tuple)):
        return _SEQUENCE
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _OBJECT
    return _CONSTANT


def children_of(value) -> dict | None:
    """The parts of a container by key or position; None for a tensor or a constant."""
    kind = kind_of(value)
    if kind == _MAPPING:
        return value
    if kind == _SEQUENCE:
        return dict(enumerate(value))
    if kind == _CUSTOM:
        return dict(enumerate(parser_of(value).yieldTensors(value)))
    if kind == _OBJECT:
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _describe(value, path: str, leaves: list, paths: list):
    children = children_of(value)
    if children is None:
        if isinstance(value, torch.Tensor):
            leaves.append(value)
            paths.append(path)
            return [_TENSOR, None, None]
        return [_CONSTANT, value, None]
    parts = {key: _describe(child, join_path(path, key), leaves, paths)
             for key, child in children.items()}
    return [kind_of(value), value, parts]


def _plain(part) -> list:
    kind, original, children = part
    if children is None:
        return [kind, original, None, None]
    # What a container knows beside its parts, as far as no tensor of the capture is in it.
    attributes = {name: value for name, value in getattr(original, "__dict__", {}).items()
                  if name not in children and not Structure.of(value)[0]}
    return [kind, type(original), attributes,
            {key: _plain(child) for key, child in children.items()}]


def _filled(part) -> list:
    schema.check(tuple(part), (int, object, dict | None, dict | None), "outputs")
    kind, original, attributes, children = part
    if (children is None) != (kind in (_CONSTANT, _TENSOR)):
        raise ValueError(f"outputs has a part of kind {kind} with the parts {children!r:.60}")
    if children is None:
        return [kind, original, None]
    schema.check(original, type, "outputs")
    bases = {_SEQUENCE: (list, tuple), _MAPPING: (dict,)}.get(kind, (object,))
    # A named tuple cannot be made empty by its own `__new__`, and only its class is looked at.
    maker = next(base for base in (tuple, original) if issubclass(original, base))
    empty = maker.__new__(original)
    if not issubclass(original, bases) or kind_of(empty) != kind:
        raise ValueError(f"{original} as a container of kind {kind}")
    if attributes:
        empty.__dict__.update(attributes)
    filled = {key: _filled(child) for key, child in children.items()}
    if kind != _CUSTOM:
        rebuilt(empty, filled)  # a named tuple wants just so many parts
    return [kind, empty, filled]


def _count_tensors(part) -> int:
    kind, _, children = part
    return (kind == _TENSOR) + sum(map(_count_tensors, (children or {}).values()))


def join_path(path: str, key) -> str:
    """The readable path of entry ``key`` of what stands at ``path`` (empty: the top)."""
    return f"{path}.{key}" if path else str(key)


def _rebuild(part, tensors):
    kind, original, children = part
    if kind == _TENSOR:
        return next(tensors)
    if kind == _CONSTANT:
        return original
    return rebuilt(original, {key: _rebuild(child, tensors) for key, child in children.items()})


def rebuilt(original, children: dict):
    """A container like ``original`` with other children, by the keys of :func:`children_of`.

    A dictionary of another class than ``dict``, a dataclass and an object of a class with a
    parser may have state of their own, which is kept.
    """
    kind = kind_of(original)
    if kind == _SEQUENCE:
        items = children.values()
        return type(original)(*items) if hasattr(original, "_fields") else type(original)(items)
    if kind == _CUSTOM:
        return parser_of(original).reconstruct(original, iter(children.values()))
    if kind == _OBJECT:
        copied = copy.copy(original)
        for name, child in children.items():
            object.__setattr__(copied, name, child)  # it may be frozen
        return copied
    if type(original) is dict:
        return children
    filled = original.copy()
    for key, value in children.items():
        filled[key] = value
    return filled


def _check_constants(part, check) -> None:
    kind, original, children = part
    if kind == _CONSTANT:
        check(original)
    for child in (children or {}).values():
        _check_constants(child, check)
