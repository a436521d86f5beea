"""A plain value as it was: compared later with what it is, however it was changed."""

import datetime
import enum
import numbers
import reprlib
import sys
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from functools import partial
from types import MappingProxyType, MemberDescriptorType, MethodType, SimpleNamespace
from typing import NamedTuple

import numpy
import torch

from poptorch._base.torch_private.basic import plain_access

# Of values of these types it is known whether they are the same; of others, whether it is the
# same object.
VALUES = frozenset({bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device,
                    torch.Size, range})
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
    """A part of a value that is another one than it was.

    Attributes:
        path: of the part.
        was, now: as text.
        is_gone: whether it is no longer there.
    """

    path: str
    was: str
    now: str
    is_gone: bool


class Snapshot:
    """What a value was, with what its containers held, nested to any depth.

    Lists, tuples, dictionaries and read-only views of them, sets, deques, ``SimpleNamespace``,
    partial functions, methods, ``bytearray``, ``array``, arrays of NumPy, and objects that have
    slots and no dictionary are gone through.

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
        parts = None if id(value) in outer else self._parts(value)
        if parts is None:
            return value, None
        if isinstance(value, (dict, list, set, deque)) or has_slots(value):
            self.held.append((value, parts))
        elif isinstance(value, SimpleNamespace):
            self.held.append((vars(value), parts))
        if isinstance(value, (dict, list)) and not isinstance(value, OrderedDict):
            self.containers.append(value)
        elif isinstance(value, SimpleNamespace):
            self.containers.append(vars(value))
        elif not isinstance(value, (tuple, frozenset, partial, MethodType)):
            self.is_quick = False
        outer = {**outer, id(value): value}
        return value, [(key, self._of(part, outer)) for key, part in parts]

    def _parts(self, value) -> list[tuple] | None:
        parts = _parts(value)
        if parts is None and self._objects is not Objects.IDENTICAL and has_attributes(value):
            return list(attributes_of(value).items())
        return parts

    def difference(self, now, path: str) -> tuple[str, str, str] | None:
        """Where another value differs first: the path, what was there and what is; None: nowhere.

        Args:
            now: the other value.
            path: of it.
        """
        return self._difference(self._known, now, path)

    def _difference(self, known: tuple, now, path: str) -> tuple[str, str, str] | None:
        value, parts = known
        if parts is None:
            return None if self._is_same(value, now) else (path, _text(known), _text_of(now))
        is_object = has_attributes(value)
        if self._objects is not Objects.IDENTICAL and is_object and value is now:
            return None
        if self._objects is Objects.EQUAL and (is_object or has_slots(value)) \
                and not (value is now or same(value, now)):
            return path, _text(known), _text_of(now)
        now_parts = self._parts(now) if type(now) is type(value) else None
        if now_parts is None or not self._are_same_keys(parts, now_parts):
            if isinstance(value, (dict, SimpleNamespace)) and now_parts is not None:
                before, after = dict(parts), dict(now_parts)
                gone = [key for key in before if key not in after]
                came = [key for key in after if key not in before]
                for key in (gone or came)[:1] if not (gone and came) else ():
                    return _joined(path, value, key), _text(before.get(key, (MISSING, None))), \
                        _text_of(after.get(key, MISSING))
            return path, _text(known), _text_of(now)
        for (key, part), (_, now_part) in zip(parts, now_parts):
            found = self._difference(part, now_part, _joined(path, value, key))
            if found is not None and isinstance(value, _BUFFERS):
                return path, _text(known), _text_of(now)
            if found is not None:
                return found
        return None

    def _are_same_keys(self, parts: list, now_parts: list) -> bool:
        return len(parts) == len(now_parts) and all(
            self._is_same(key, now) for (key, _), (now, _) in zip(parts, now_parts))

    def _is_same(self, value, now) -> bool:
        if value is now:
            return True
        kind = type(value)
        if kind is not type(now):
            return False
        if isinstance(value, numpy.generic):
            return value.dtype == now.dtype and value.tobytes() == now.tobytes()
        if kind not in VALUES and self._objects is not Objects.IDENTICAL:
            is_skipped = self._objects is Objects.ALIKE and isinstance(value, torch.Tensor)
            return is_skipped or same(value, now)
        if kind not in VALUES:
            return False
        # Zeros of both signs are equal, and what is not a number equals nothing.
        return repr(value) == repr(now) if kind in (float, complex, range) else value == now

    def change(self, path: str) -> "Change | None":
        """The first part of the value itself that was there and is another one now, or gone; None:
        at most something was added. Tensors in it are passed over.

        Args:
            path: of the value.
        """
        return self._change(self._known, self.value, path)

    def _change(self, known: tuple, now, path: str) -> "Change | None":
        value, parts = known
        if isinstance(value, torch.Tensor) or isinstance(now, torch.Tensor):
            return None
        now_parts = self._parts(now) if type(now) is type(value) else None
        if parts is None or now_parts is None or isinstance(value, _BUFFERS):
            found = self._difference(known, now, path)
            return found and Change(*found, False)
        if isinstance(value, (list, deque)) and len(now_parts) < len(parts):
            return Change(path, _text(known), _text_of(now), True)
        now_by_key = dict(now_parts)
        for key, part in parts:
            inner = _joined(path, value, key)
            if key not in now_by_key:
                return Change(inner, _text(part), "nothing", True)
            found = self._change(part, now_by_key[key], inner)
            if found is not None:
                return found
        if _is_counting(value) and len(now_parts) > len(parts):
            return Change(path, _text(known), _text_of(now), False)
        return None

    def text(self) -> str:
        """The value as it was."""
        return _text(self._known)


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
    """The attributes of an object of a program's own class, or what it has in slots; nothing of
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
_OF_PARTIAL = ("func", "args", "keywords")
_OF_METHOD = ("__func__", "__self__")


def _parts(value) -> list[tuple] | None:
    """Keys and values of what is gone through; None for other objects."""
    if isinstance(value, OrderedDict):
        return list(OrderedDict.items(value))
    if isinstance(value, dict):
        return list(dict.items(value))
    if isinstance(value, MappingProxyType):
        return list(value.items())
    if isinstance(value, _VIEWS):
        return list(enumerate(value))
    if isinstance(value, SimpleNamespace):
        return list(vars(value).items())
    if type(value) in VALUES:
        return None
    if isinstance(value, partial):
        return [(name, getattr(value, name)) for name in _OF_PARTIAL]
    if isinstance(value, MethodType):
        return [(name, getattr(value, name)) for name in _OF_METHOD]
    if isinstance(value, numpy.ndarray) and value.dtype.hasobject:
        return list(enumerate(value.flat))
    if isinstance(value, numpy.ndarray):
        return [("", str(value.dtype)), ("", value.shape), ("", value.tobytes())]
    if isinstance(value, (bytearray, memoryview, array)):
        return [("", bytes(value))]
    for kind in (list, tuple, deque):
        if isinstance(value, kind):
            return list(enumerate(kind.__iter__(value)))
    if isinstance(value, (set, frozenset)):
        return [(item, item) for item in sorted(value, key=_order)]
    return list(attributes_of(value).items()) if has_slots(value) else None


def _is_counting(value) -> bool:
    """Whether keys are added to a dictionary by counting."""
    return isinstance(value, Counter) \
        or isinstance(value, defaultdict) and value.default_factory in (int, float)


def _order(item) -> tuple:
    return (type(item).__name__, repr(item) if type(item) in VALUES else str(hash(item)))


def _joined(path: str, value, key) -> str:
    is_attribute = isinstance(value, (SimpleNamespace, partial, MethodType)) or has_slots(value) \
        or has_attributes(value) and not isinstance(value, _WITH_ITEMS)
    return f"{path}.{key}" if is_attribute else f"{path}[{key!r}]"


def _text(known: tuple) -> str:
    return _text_of(_rebuilt(known))


_WITH_ITEMS = (list, tuple, deque, frozenset, set, dict)
_DATA = (*_WITH_ITEMS, *_BUFFERS, *_VIEWS, MappingProxyType, SimpleNamespace, numpy.generic,
         torch.Tensor)


def _tensor_type(tensor: torch.Tensor) -> str:
    with plain_access():
        return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _rebuilt(known: tuple):
    """The value as it was, for messages: of plain types."""
    value, parts = known
    if parts is None:
        return value
    items = [_rebuilt(part) for _, part in parts]
    if isinstance(value, (dict, MappingProxyType)):
        return {key: item for (key, _), item in zip(parts, items)}
    if isinstance(value, _VIEWS):
        return items
    if isinstance(value, SimpleNamespace):
        return SimpleNamespace(**{key: item for (key, _), item in zip(parts, items)})
    if isinstance(value, array):
        return array(value.typecode, items[0])
    if isinstance(value, numpy.ndarray):
        # Of a type with fields there is no text that NumPy reads.
        dtype = value.dtype if items[0] == str(value.dtype) else items[0]
        return items if len(items) != 3 or value.dtype.hasobject else numpy.frombuffer(
            items[2], dtype).reshape(items[1])
    if isinstance(value, partial):
        return partial(items[0], *items[1], **items[2])
    kind = next((kind for kind in _WITH_ITEMS if isinstance(value, kind)), None)
    if isinstance(value, memoryview):
        return items[0]
    if isinstance(value, bytearray):
        return bytearray(items[0])
    return value if kind is None else kind(items)


def _text_of(value) -> str:
    if value is MISSING:
        return "nothing"
    if isinstance(value, torch.Tensor):
        return f"a {_tensor_type(value)} tensor"
    value = bytes(value) if isinstance(value, memoryview) else value
    return repr(value) if type(value) in VALUES else _short.repr(value)
