"""A copy of a plain value, compared later with the present value."""

import copy
import datetime
import enum
import numbers
import reprlib
import sys
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MappingProxyType, MemberDescriptorType, MethodType, SimpleNamespace
from typing import NamedTuple

import numpy
import torch

from poptorch._base.torch_private.basic import plain_access

# Of values of these types it is known whether they are the same; of others, whether it is the
# same object.
VALUES = frozenset({bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device,
                    torch.Size, range})
# Objects of these have no parts, either.
_WHOLE = VALUES | {torch.Tensor, torch.nn.Parameter, type, FunctionType}
# Objects of these hold what is not the program's: loggers, locks, random generators.
_FOREIGN = frozenset(sys.stdlib_module_names) | {"torch", "poptorch"}
# But objects of these are as the program's own: they hold what it puts there.
_FOR_PROGRAMS = frozenset({
    "argparse.Namespace", "collections.ChainMap", "collections.UserDict", "collections.UserList",
    "configparser.ConfigParser", "configparser.RawConfigParser", "configparser.SectionProxy"})
MISSING = object()  # in place of a value
_WITH_EQUALS = (numbers.Number, range, datetime.datetime, datetime.time)
_IS_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: not a class of C
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = _short.maxdeque = 8


class Objects(enum.Enum):
    """When an object that is no container is as it was.

    Attributes:
        IDENTICAL: it is the same object, whatever is within.
        EQUAL: it is the same one, or one of its class that says it is equal, and so are their
            attributes.
        ALIKE: it is of the same class, and so are their attributes, but for tensors.
    """

    IDENTICAL, EQUAL, ALIKE = range(3)


class Change(NamedTuple):
    """A part of a value that changed: its path, both values as text, whether it is gone."""

    path: str
    was: str
    now: str
    is_gone: bool = False


class Snapshot:
    """What a value was, with what its containers held, nested to any depth.

    Lists, tuples, dictionaries and read-only views of them, sets, deques, ``SimpleNamespace``,
    partial functions, methods, and objects that have slots and no dictionary are gone through.
    Of ``bytearray``, ``array`` and arrays of NumPy there is a copy.

    Args:
        value: the value.
        objects: how objects of other types are compared.

    Attributes:
        value: the object itself, as it is now.
        containers: dictionaries and lists in it; not those that are ordered otherwise than they
            hold their items.
        held: what in it holds parts that can be changed, with the keys and items that it had.
        is_quick: whether everything in it stays as it was while its containers hold the same
            objects; else it has to be compared.
    """

    def __init__(self, value, objects: Objects = Objects.IDENTICAL):
        self.containers: list = []
        self.held: list[tuple] = []
        self.is_quick = True
        self.value = value
        self._objects = objects
        self._known = self._of(value, {})

    def _of(self, value, outer: dict) -> tuple:
        if type(value) in _WHOLE:
            return value, None
        parts = None if id(value) in outer else self._parts(value)
        if parts is None:
            self.is_quick = self.is_quick and not isinstance(value, _BUFFERS)
            return _copied(value), None
        table = vars(value) if isinstance(value, SimpleNamespace) else value
        if isinstance(table, (dict, list, set, deque)) or has_slots(value):
            self.held.append((table, parts))
        if isinstance(table, (dict, list)) and not isinstance(table, OrderedDict):
            self.containers.append(table)
        elif not isinstance(value, (tuple, frozenset, partial, MethodType)):
            self.is_quick = False
        if not parts:
            return value, parts
        outer = {**outer, id(value): value}
        return value, [(key, self._of(part, outer)) for key, part in parts]

    def _parts(self, value) -> list[tuple] | None:
        parts = _parts(value)
        if parts is None and self._objects is not Objects.IDENTICAL and has_attributes(value):
            return list(attributes_of(value).items())
        return parts

    def difference(self, now, path: str) -> tuple[str, str, str] | None:
        """Where another value differs first: the path, what was there and what is; None: nowhere.
        """
        found = self._difference(self._known, now, path, True)
        return found and found[:3]

    def change(self, path: str) -> Change | None:
        """The first part of the value itself that changed or is gone; None: at most something was
        added. Tensors in it are passed over."""
        return self._difference(self._known, self.value, path, False)

    def _difference(self, known: tuple, now, path: str, is_whole: bool) -> Change | None:
        value, parts = known
        if not is_whole and (isinstance(value, torch.Tensor) or isinstance(now, torch.Tensor)):
            return None
        changed = partial(_change, known, now, path)
        if parts is None:
            return None if self._is_same(value, now) else changed()
        if self._objects is not Objects.IDENTICAL and (has_attributes(value) or has_slots(value)):
            if value is now and has_attributes(value):
                return None
            if self._objects is Objects.EQUAL and not (value is now or same(value, now)):
                return changed()
        now_parts = self._parts(now) if type(now) is type(value) else None
        if now_parts is None:
            return changed()
        if is_whole and not self._are_same_keys(parts, now_parts):
            return _change_of_keys(known, now, path, dict(now_parts))
        if isinstance(value, (list, deque)) and len(now_parts) < len(parts):
            return changed(is_gone=True)
        now_by_key = dict(now_parts)
        for key, part in parts:
            inner, there = _joined(path, value, key), now_by_key.get(key, MISSING)
            if there is MISSING:
                return _change(part, there, inner, is_gone=True)
            found = self._difference(part, there, inner, is_whole)
            if found is not None:
                return found
        return changed() if _is_counting(value) and len(now_parts) > len(parts) else None

    def _are_same_keys(self, parts: list, now_parts: list) -> bool:
        return len(parts) == len(now_parts) and all(
            self._is_same(key, now) for (key, _), (now, _) in zip(parts, now_parts))

    def _is_same(self, value, now) -> bool:
        kind = type(value)
        if value is now or kind is not type(now):
            return value is now
        if isinstance(value, (numpy.ndarray, numpy.generic)):
            return (value.dtype, value.shape) == (now.dtype, now.shape) \
                and value.tobytes() == now.tobytes()
        if isinstance(value, _BUFFERS):
            return bytes(value) == bytes(now)
        if kind not in VALUES and self._objects is not Objects.IDENTICAL:
            is_skipped = self._objects is Objects.ALIKE and isinstance(value, torch.Tensor)
            return is_skipped or same(value, now)
        # Zeros of both signs are equal, and what is not a number equals nothing.
        return kind in VALUES and (
            repr(value) == repr(now) if kind in (float, complex, range) else value == now)

    def text(self) -> str:
        """The value as it was."""
        return _text_of(_rebuilt(self._known))


def _change(known: tuple, now, path: str, is_gone: bool = False) -> Change:
    return Change(path, _text_of(_rebuilt(known)), _text_of(now), is_gone)


def _change_of_keys(known: tuple, now, path: str, after: dict) -> Change:
    """The key that is gone or new, if the value has names and nothing else differs."""
    value, before = known[0], dict(known[1])
    gone = [key for key in before if key not in after]
    came = [key for key in after if key not in before]
    if isinstance(value, (dict, SimpleNamespace)) and bool(gone) != bool(came):
        key = (gone or came)[0]
        return _change(before.get(key, (MISSING, None)), after.get(key, MISSING),
                       _joined(path, value, key))
    return _change(known, now, path)


def same(a, b) -> bool:
    """Whether two constants are equal, and nothing of them differs; NaN and NaN are."""
    try:
        # Of these, equal ones may differ: in the sign of zero, the ends, the time zone.
        if isinstance(a, _WITH_EQUALS) and not isinstance(a, int) and a == b:
            return repr(a) == repr(b)
        return bool(a == b) or bool(a != a and b != b)
    except Exception:  # values without a comparison are not the same
        return a is b


def has_attributes(value) -> bool:
    """Whether a value is an object of a program's own class that has attributes."""
    kind = type(value)
    return bool(kind.__flags__ & _IS_HEAP_TYPE and kind.__dictoffset__) \
        and not issubclass(kind, (torch.Tensor, torch.nn.Module, type, enum.Enum)) \
        and (not is_foreign(kind) or f"{kind.__module__}.{kind.__qualname__}" in _FOR_PROGRAMS)


def is_foreign(kind: type) -> bool:
    """Whether a class is of Python, torch or poptorch."""
    return kind.__module__.partition(".")[0] in _FOREIGN


def has_slots(value) -> bool:
    """Whether a value is an object of a program's own class that has slots, and nothing else."""
    kind = type(value)
    return not kind.__dictoffset__ and not is_foreign(kind) \
        and all(cls is object or cls.__flags__ & _IS_HEAP_TYPE for cls in kind.__mro__) \
        and any(isinstance(member, MemberDescriptorType)
                for cls in kind.__mro__ for member in vars(cls).values())


def attributes_of(value) -> dict:
    """The attributes of an object of a program's own class, or its slots; nothing of
    another value."""
    if has_attributes(value):
        return object.__getattribute__(value, "__dict__")
    state = object.__getstate__(value) if has_slots(value) else None
    return {} if state is None else state[1]


def attribute_of(value, name: str):
    """An attribute as it stands in an object or a class, without what a descriptor would make of
    it; ``MISSING`` where there is none."""
    classes = value.__mro__ if isinstance(value, type) else type(value).__mro__
    tables = [] if isinstance(value, type) else [_own_attributes(value)]
    for table in (*tables, *map(vars, classes)):
        if name in table:
            return table[name]
    return MISSING


def _own_attributes(value) -> dict:
    """The attributes of any object, without what its class makes of reading them."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}


def is_compared(value) -> bool:
    """Whether a value is plain data, which :class:`Snapshot` compares, or a tensor."""
    return type(value) in VALUES or isinstance(value, _DATA)


def objects_within(value, path: str) -> Iterator[tuple[str, object]]:
    """What containers in a value hold, to any depth, with paths; of another value that one. Of the
    containers themselves, those that have attributes."""
    seen, left = set(), [(path, value)]
    while left:
        path, value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        parts = None if isinstance(value, _BUFFERS) else _parts(value)
        if parts is None or has_attributes(value):
            yield path, value
        if parts is not None:
            left += [(_joined(path, value, key), part) for key, part in parts
                     if type(part) not in VALUES]


# Their elements are one content.
_BUFFERS = (bytearray, memoryview, array, numpy.ndarray)
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
_WITH_ITEMS = (list, tuple, deque, frozenset, set, dict)
_DATA = (*_WITH_ITEMS, *_BUFFERS, *_VIEWS, MappingProxyType, SimpleNamespace, numpy.generic,
         torch.Tensor)
_ATTRIBUTES = {partial: ("func", "args", "keywords"), MethodType: ("__func__", "__self__")}


def _parts(value) -> list[tuple] | None:
    """Keys and values of what is gone through; None for other objects."""
    if type(value) in _WHOLE:
        return None
    if isinstance(value, dict):
        kind = OrderedDict if isinstance(value, OrderedDict) else dict
        return list(kind.items(value))
    if isinstance(value, MappingProxyType):
        return list(value.items())
    if isinstance(value, SimpleNamespace):
        return list(vars(value).items())
    for kind, names in _ATTRIBUTES.items():
        if isinstance(value, kind):
            return [(name, getattr(value, name)) for name in names]
    for kind in (list, tuple, deque, *_VIEWS):
        if isinstance(value, kind):
            return list(enumerate(kind.__iter__(value)))
    if isinstance(value, numpy.ndarray) and value.dtype.hasobject:
        return list(enumerate(value.flat))
    if isinstance(value, (set, frozenset)):
        return [(item, item) for item in sorted(value, key=_order)]
    return list(attributes_of(value).items()) if has_slots(value) else None


def _copied(value):
    """A copy of what has one content; another value as it is."""
    if isinstance(value, memoryview):
        return memoryview(bytes(value))
    return copy.copy(value) if isinstance(value, _BUFFERS) else value


def _is_counting(value) -> bool:
    """Whether keys are added to a dictionary by counting."""
    return isinstance(value, Counter) \
        or isinstance(value, defaultdict) and value.default_factory in (int, float)


def _order(item) -> tuple:
    return (type(item).__name__, repr(item) if type(item) in VALUES else str(hash(item)))


def _joined(path: str, value, key) -> str:
    is_attribute = isinstance(value, (SimpleNamespace, *_ATTRIBUTES)) or has_slots(value) \
        or has_attributes(value) and not isinstance(value, _WITH_ITEMS)
    return f"{path}.{key}" if is_attribute else f"{path}[{key!r}]"


def _rebuilt(known: tuple):
    """The value as it was, for messages: of plain types."""
    value, parts = known
    if parts is None:
        return value
    items = {key: _rebuilt(part) for key, part in parts}
    if isinstance(value, (dict, MappingProxyType)):
        return items
    if isinstance(value, SimpleNamespace):
        return SimpleNamespace(**items)
    if isinstance(value, partial):
        return partial(items["func"], *items["args"], **items["keywords"])
    for kind in (*_WITH_ITEMS, *_VIEWS, numpy.ndarray):
        if isinstance(value, kind):
            return (kind if kind in _WITH_ITEMS else list)(items.values())
    return value


def _text_of(value) -> str:
    if value is MISSING:
        return "nothing"
    if isinstance(value, torch.Tensor):
        with plain_access():
            return f"a {str(value.dtype).removeprefix('torch.')}{list(value.shape)} tensor"
    value = bytes(value) if isinstance(value, memoryview) else value
    return repr(value) if type(value) in VALUES else _short.repr(value)
