"""Nested arguments and results: taken apart into leaves, and put together again."""

import copy
import dataclasses
from collections.abc import Callable

import torch

_CONSTANT, _TENSOR, _SEQUENCE, _MAPPING, _OBJECT = range(5)


class Structure:
    """The shape of a nested value: sequences, dictionaries and dataclasses around leaves.

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
        root = _describe(tree, name, leaves, paths)
        return leaves, cls(root, paths)

    def unflatten(self, tensors: list):
        """The nested value with ``tensors`` in place of its tensor leaves."""
        return _rebuild(self._root, iter(tensors))

    def check_constants(self, check: Callable) -> None:
        """Calls ``check`` with each value that is neither a container nor a tensor."""
        _check_constants(self._root, check)


def _describe(value, path: str, leaves: list, paths: list):
    if isinstance(value, torch.Tensor):
        leaves.append(value)
        paths.append(path)
        return [_TENSOR, None, None]
    if isinstance(value, dict):
        parts = {k: _describe(v, join_path(path, k), leaves, paths) for k, v in value.items()}
        return [_MAPPING, value, parts]
    if isinstance(value, (list, tuple)):
        parts = [_describe(v, join_path(path, i), leaves, paths) for i, v in enumerate(value)]
        return [_SEQUENCE, value, parts]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: _describe(getattr(value, field.name), join_path(path, field.name),
                                       leaves, paths) for field in dataclasses.fields(value)}
        return [_OBJECT, value, parts]
    return [_CONSTANT, value, None]


def join_path(path: str, key) -> str:
    """The readable path of entry ``key`` of what stands at ``path`` (empty: the top)."""
    return f"{path}.{key}" if path else str(key)


def _rebuild(part, tensors):
    kind, original, children = part
    if kind == _TENSOR:
        return next(tensors)
    if kind == _MAPPING:
        return rebuilt(original, {k: _rebuild(v, tensors) for k, v in children.items()})
    if kind == _OBJECT:
        copied = copy.copy(original)
        for name, child in children.items():
            object.__setattr__(copied, name, _rebuild(child, tensors))  # it may be frozen
        return copied
    if kind == _SEQUENCE:
        return rebuilt(original, [_rebuild(child, tensors) for child in children])
    return original


def rebuilt(original, items):
    """``items``, a list or dict, in a container of the class of ``original``.

    A dictionary of another class than ``dict`` may have state of its own, which is kept.
    """
    if not isinstance(original, dict):
        return type(original)(*items) if hasattr(original, "_fields") else type(original)(items)
    if type(original) is dict:
        return items
    filled = original.copy()
    for key, value in items.items():
        filled[key] = value
    return filled


def _check_constants(part, check) -> None:
    kind, original, children = part
    if kind == _CONSTANT:
        check(original)
    for child in (children if kind == _SEQUENCE else (children or {}).values()):
        _check_constants(child, check)
