"""The Python state of an optimizer: the containers that it holds, a copy of them, and the tensors.

Only what an optimizer leads to by dictionaries, lists and attributes is its state.
"""

import collections
import types
from collections.abc import Iterator
from typing import NamedTuple

import torch

from poptorch._base.torch_private.fake_tensors import is_fake

# Attributes that torch's base class keeps for itself.
_OF_TORCH = ("_optimizer_", "_zero_grad_profile_name", "_patch", "_warned", "defaults")
_LEAVES = (torch.Tensor, torch.nn.Module, type, types.FunctionType, types.ModuleType,
           types.MethodType, types.BuiltinFunctionType, torch.Generator)
_PLAIN = frozenset({int, float, bool, str, type(None), bytes, complex})


class Place(NamedTuple):
    """Where a value stands: its path, the container and the key there."""

    path: str
    container: object
    key: object

    def put(self, value) -> None:
        self.container[self.key] = value


def containers_of(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> Iterator[tuple]:
    """Each container with its path, once. ``names`` are those of parameters, by identity."""
    seen, left = set(), [("", _attributes(optimizer))]
    while left:
        path, container = left.pop()
        if id(container) in seen:
            continue
        seen.add(id(container))
        if not isinstance(container, tuple):
            yield path, container
        inner = []
        for key, value in items(container):
            if type(value) in _PLAIN or isinstance(value, _LEAVES) or _is_hidden(path, key):
                continue
            below = _container(value)
            if below is not None:
                inner.append((path_of(path, key, names), below))
        left += reversed(inner)


def items(container):
    """The keys and values of a container."""
    if isinstance(container, dict):
        return list(dict.items(container))
    return list(enumerate(container))


def path_of(path: str, key, names: dict[int, str]) -> str:
    """The path of an entry of a container."""
    name = names.get(id(key), "tensor") if isinstance(key, torch.Tensor) else str(key)
    return f"{path}.{name}" if path else name


def tensors_of(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> dict[str, list]:
    """The tensors other than parameters, by path: each with all its places."""
    found: dict[int, list] = {}
    for path, container in containers_of(optimizer, names):
        if path.endswith(".params") and isinstance(container, list):
            continue
        for key, value in items(container):
            if isinstance(value, torch.Tensor) and id(value) not in names:
                found.setdefault(id(value), []).append(
                    (value, Place(path_of(path, key, names), container, key)))
    return {places[0][1].path: places for places in found.values()}


class Snapshot:
    """What the containers of an optimizer hold now, and the numbers among its tensors, to be put
    back. ``others`` are the identities of tensors that the host does not change."""

    def __init__(self, optimizer: torch.optim.Optimizer, names: dict[int, str], others: set[int]):
        self._kept, self._numbers = [], []
        for _, container in containers_of(optimizer, names):
            self._kept.append((container, _copied(container)))
            for _, value in items(container):
                if isinstance(value, torch.Tensor) and is_number(value) and id(value) not in others:
                    self._numbers.append((value, value.detach().clone()))

    def restore(self) -> None:
        for container, content in self._kept:
            if isinstance(container, dict):
                dict.clear(container)
                dict.update(container, content)
            else:
                container.clear()
                (container.update if isinstance(container, set) else container.extend)(content)
        with torch.no_grad():
            for tensor, value in self._numbers:
                tensor.copy_(value)


def is_number(tensor: torch.Tensor) -> bool:
    """Whether the host can compute a tensor: one with data, of one element."""
    return not is_fake(tensor) and tensor.numel() == 1


def _attributes(holder) -> dict:
    return vars(holder)


def _is_hidden(path: str, key) -> bool:
    return isinstance(key, str) and key.startswith(_OF_TORCH)


def _container(value):
    """The container that a value is, or has its attributes in; None: neither."""
    if isinstance(value, (dict, list, tuple, set, collections.deque)):
        return value
    return vars(value) if hasattr(value, "__dict__") else None


def _copied(container):
    return list(container) if not isinstance(container, dict) else dict(dict.items(container))
