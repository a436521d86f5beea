"""A plain value as it was: compared later with what it is, however it was changed."""

import reprlib
from collections import OrderedDict, deque
from collections.abc import Iterator
from types import SimpleNamespace

import torch

# Of values of these types it is known whether they are the same; of others, whether it is the
# same object.
_VALUES = frozenset({bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device,
                     torch.Size, range})
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = _short.maxdeque = 8


class Snapshot:
    """What a value was, with what its containers held, nested to any depth.

    Lists, tuples, dictionaries, sets, deques and ``SimpleNamespace`` are gone through. Objects of
    other types are compared by identity, so a change within one of them is not noticed.

    Args:
        value: the value.

    Attributes:
        value: the object itself, as it is now.
        containers: dictionaries and lists in it; not those that are ordered otherwise than they
            hold their items.
        held: what can be changed in it, with the keys and items that each part had.
        is_quick: whether everything in it stays as it was while its containers hold the same
            objects; else it has to be compared.
    """

    def __init__(self, value):
        self.containers: list = []
        self.held: list[tuple] = []
        self.is_quick = True
        self.value = value
        self._known = self._of(value, {})

    def _of(self, value, outer: dict) -> tuple:
        parts = None if id(value) in outer else _parts(value)
        if parts is None:
            return value, None
        if not isinstance(value, (tuple, frozenset)):
            is_space = isinstance(value, SimpleNamespace)
            self.held.append((vars(value) if is_space else value, parts))
        if isinstance(value, (dict, list)) and not isinstance(value, OrderedDict):
            self.containers.append(value)
        elif isinstance(value, SimpleNamespace):
            self.containers.append(vars(value))
        elif not isinstance(value, (tuple, frozenset)):
            self.is_quick = False
        outer = {**outer, id(value): value}
        return value, [(key, self._of(part, outer)) for key, part in parts]

    def difference(self, now, path: str) -> tuple[str, str, str] | None:
        """Where another value differs first: the path, what was there and what is; None: nowhere.

        Args:
            now: the other value.
            path: of it.
        """
        return _difference(self._known, now, path)

    def text(self) -> str:
        """The value as it was."""
        return _text(self._known)


def objects_within(value, path: str) -> Iterator[tuple[str, object]]:
    """What containers in a value hold, to any depth, with paths; of another value that one."""
    seen, left = set(), [(path, value)]
    while left:
        path, value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        parts = _parts(value)
        if parts is None:
            yield path, value
        else:
            left += [(_joined(path, value, key), part) for key, part in parts
                     if type(part) not in _VALUES]


def _parts(value) -> list[tuple] | None:
    """Keys and values of what is gone through; None for other objects."""
    if isinstance(value, OrderedDict):
        return list(OrderedDict.items(value))
    if isinstance(value, dict):
        return list(dict.items(value))
    if isinstance(value, SimpleNamespace):
        return list(vars(value).items())
    if type(value) in _VALUES:
        return None
    for kind in (list, tuple, deque):
        if isinstance(value, kind):
            return list(enumerate(kind.__iter__(value)))
    if isinstance(value, (set, frozenset)):
        return [(item, item) for item in sorted(value, key=_order)]
    return None


def _order(item) -> tuple:
    return (type(item).__name__, repr(item) if type(item) in _VALUES else str(id(item)))


def _difference(known: tuple, now, path: str) -> tuple[str, str, str] | None:
    value, parts = known
    if parts is None:
        return None if _is_same(value, now) else (path, _text(known), _text_of(now))
    now_parts = _parts(now) if type(now) is type(value) else None
    if now_parts is None or not _are_same_keys(parts, now_parts):
        return path, _text(known), _text_of(now)
    for (key, part), (_, now_part) in zip(parts, now_parts):
        found = _difference(part, now_part, _joined(path, value, key))
        if found is not None:
            return found
    return None


def _are_same_keys(parts: list, now_parts: list) -> bool:
    return len(parts) == len(now_parts) and all(
        _is_same(key, now) for (key, _), (now, _) in zip(parts, now_parts))


def _is_same(value, now) -> bool:
    if value is now:
        return True
    kind = type(value)
    if kind is not type(now) or kind not in _VALUES:
        return False
    # Zeros of both signs are equal, and what is not a number equals nothing.
    return repr(value) == repr(now) if kind in (float, complex) else value == now


def _joined(path: str, value, key) -> str:
    return f"{path}.{key}" if isinstance(value, SimpleNamespace) else f"{path}[{key!r}]"


def _text(known: tuple) -> str:
    return _text_of(_rebuilt(known))


def _rebuilt(known: tuple):
    """The value as it was, for messages: of plain types."""
    value, parts = known
    if parts is None:
        return value
    items = [_rebuilt(part) for _, part in parts]
    if isinstance(value, dict):
        return {key: item for (key, _), item in zip(parts, items)}
    if isinstance(value, SimpleNamespace):
        return SimpleNamespace(**{key: item for (key, _), item in zip(parts, items)})
    kind = next(kind for kind in (list, tuple, deque, frozenset, set) if isinstance(value, kind))
    return kind(items)


def _text_of(value) -> str:
    return repr(value) if type(value) in _VALUES else _short.repr(value)
