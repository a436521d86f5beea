"""The Python state of an optimizer: the containers that it holds, a copy of them, and the tensors.

Only what an optimizer leads to by dictionaries, lists and attributes is its state.
"""

import collections
import types
from collections.abc import Iterator
from typing import NamedTuple

import torch

from poptorch._base.torch_private.fake_tensors import is_fake
from poptorch._own_step.base import OF_TORCH

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
    back or compared. ``others`` are the identities of tensors that the host does not change."""

    def __init__(self, optimizer: torch.optim.Optimizer, names: dict[int, str], others: set[int]):
        self._names = names
        self._kept, self._numbers = [], []
        for path, container in containers_of(optimizer, names):
            self._kept.append((path, container, _copied(container)))
            for key, value in items(container):
                if isinstance(value, torch.Tensor) and is_number(value) and id(value) not in others:
                    self._numbers.append((path_of(path, key, names), value, value.detach().clone()))

    def change(self) -> str | None:
        """What the optimizer does not hold as it did: the path and both values; None: nothing."""
        for path, container, content in self._kept:
            before, now = (dict(items(one)) for one in (content, container))
            for key in (*before, *(key for key in now if key not in before)):
                was, value = before.get(key), now.get(key)
                if key not in before or key not in now or not _is_same(was, value):
                    return f"{path_of(path, key, self._names)} from {was!r:.40} to {value!r:.40}"
        for path, tensor, value in self._numbers:
            if not torch.equal(tensor, value):
                return f"{path} from {value!r:.40} to {tensor!r:.40}"
        return None

    def restore(self) -> None:
        for _, container, content in self._kept:
            if isinstance(container, dict):
                dict.clear(container)
                dict.update(container, content)
            else:
                container.clear()
                (container.update if isinstance(container, set) else container.extend)(content)
        with torch.no_grad():
            for _, tensor, value in self._numbers:
                tensor.copy_(value)


def is_number(tensor: torch.Tensor) -> bool:
    """Whether the host can compute a tensor: one with data, of one element."""
    return not is_fake(tensor) and tensor.numel() == 1


def _is_same(one, other) -> bool:
    if type(one) is tuple and type(other) is tuple and len(one) == len(other):
        return all(map(_is_same, one, other))
    return one is other or type(one) is type(other) and type(one) in _PLAIN and one == other


def _attributes(holder) -> dict:
    return vars(holder)


def _is_hidden(path: str, key) -> bool:
    return isinstance(key, str) and key.startswith((*OF_TORCH, "defaults"))


def _container(value):
    """The container that a value is, or has its attributes in; None: neither."""
    if isinstance(value, (dict, list, tuple, set, collections.deque)):
        return value
    return vars(value) if hasattr(value, "__dict__") else None


def _copied(container):
    return list(container) if not isinstance(container, dict) else dict(dict.items(container))
