"""The attributes that ``forward`` reads and sets, of modules and of the objects that they hold.

While ``forward`` runs, the class of an object that it can reach, such as a configuration, has
methods that record which attributes are read and set. A container does not report which items are
read, so it counts as a whole, and so does an object whose class cannot be changed
(``SimpleNamespace``).
"""

import enum
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from poptorch._base.value_snapshot import (
    MISSING,
    Snapshot,
    attribute_of,
    has_attributes,
    is_compared,
    is_foreign,
    objects_within,
)
from poptorch._capture.graph.module_clones import OF_EACH_MODULE, RECURRENT_CACHES
from poptorch._capture.graph.unknown_sizes import has_no_data
from poptorch._guards.guard import HeldAttribute, line_of, table_of
from poptorch._guards.host_randomness import Draws
from poptorch._guards.put_back import holds_fake
from poptorch._guards.python_state import Observed, is_number
from poptorch.errors import place_text

TABLES = ("_parameters", "_buffers", "_modules")
_METHODS = ("__getattribute__", "__setattr__", "__delattr__")
_NOT_READ = frozenset({*OF_EACH_MODULE, *RECURRENT_CACHES})
_OF_CLASS = frozenset(dir(torch.nn.Module))


class Origin(enum.Enum):
    """What leads to an object: a module, an argument, or a name outside of ``forward``."""

    MODULE, ARGUMENT, OUTSIDE = range(3)


class Holder(NamedTuple):
    """A module or an object whose attributes are noted; ``before`` has those of the beginning."""

    value: object
    path: str
    prefix: str  # before the path, in messages
    origin: Origin
    before: dict

    @property
    def is_module(self) -> bool:
        """Whether it is a module. isinstance() would read an attribute of the object."""
        return issubclass(type(self.value), torch.nn.Module)


class Record(Observed):
    """What is known of one attribute.

    Attributes:
        holder: what has it.
        of_class: that of the class where the object had none, if it is compared.
        is_missed: whether the object was asked for it and had none.
        set_at: the line that set it last, if it is known.
    """

    def __init__(self, holder: Holder, name: str):
        super().__init__(f"{holder.path}.{name}".lstrip("."), name)
        self.holder = holder
        self.of_class: Snapshot | None = None
        self.is_missed = False
        self.set_at: tuple[str, int] | None = None

    @property
    def text(self) -> str:
        """The attribute as messages name it."""
        return self.holder.prefix + self.path if self.holder.is_module else self.path

    @property
    def is_set_first(self) -> bool:
        """Whether ``forward`` set it without reading what was there before."""
        return bool(self.sets) and self.first is MISSING and not self.is_missed

    def value(self):
        """The object's own attribute; ``MISSING`` where there is none."""
        return table_of(self.holder.value, self.name).get(self.name, MISSING)

    own_value = value

    def place(self) -> str:
        """The line that set it."""
        return place_text(self.set_at, self.holder.path if self.holder.is_module else "")

    def is_as_read(self) -> bool:
        """Whether ``forward`` has left it as it was."""
        if self.sets:
            return False
        if self.before is None:
            return self.is_missed and self.value() is MISSING
        return self.is_unchanged() and not holds_fake(self.before.value)

    def change(self) -> tuple[str, str, str] | None:
        """Also of the class, if that has the attribute."""
        if self.of_class is None:
            return super().change()
        now = attribute_of(type(self.holder.value), self.name)
        return self.of_class.difference(now, self.path)


class Reads:
    """The table of what was read and set.

    Args:
        is_here: whether ``forward`` runs in the present thread.
        here: the user's line.

    Attributes:
        holders: modules and objects, by identity.
        records: of their attributes, by the identity of the holder and the name.
        modes: the modules whose ``training`` was read, by identity.
        draws: what ``forward`` draws from.
    """

    def __init__(self, is_here: Callable[[], bool], here: Callable[[], tuple[str, int] | None]):
        self.draws = Draws().of_process()
        self.holders: dict[int, Holder] = {}
        self.records: dict[tuple[int, str], Record] = {}
        self.modes: dict[int, torch.nn.Module] = {}
        self._is_here, self._here = is_here, here
        # What stood in classes in place of the readers and writers.
        self._classes: dict[type, dict] = {}
        # The numbers that classes of modules had before forward ran.
        self._numbers: dict[type, dict[str, object]] = {}

    def hold(self, value, path: str, prefix: str, origin: Origin) -> Holder:
        """Takes note of what is read of a module or an object from now on."""
        own = object.__getattribute__(value, "__dict__")
        if issubclass(type(value), torch.nn.Module) and type(value) not in self._numbers:
            self._numbers[type(value)] = {
                name: there for owner in reversed(type(value).__mro__) if not is_foreign(owner)
                for name, there in vars(owner).items() if is_number(there)}
        return self.holders.setdefault(id(value), Holder(value, path, prefix, origin, dict(own)))

    def meet(self, value, path: str, origin: Origin, prefix: str = "") -> None:
        """The same for the objects in a value."""
        for path, part in [] if has_no_data(value) else objects_within(value, path):
            self.draws.meet(part, path)
            self.enter(part, path, origin, prefix)

    def enter(self, found, path: str, origin: Origin, prefix: str = "") -> None:
        """The same for an object itself, also a container."""
        if type(found) is types.MethodType:
            found, path = found.__self__, f"{path}.__self__"
        if type(found) is functools.partial:
            for inner, part in objects_within([found.func, found.args, found.keywords], path):
                self.enter(part, inner, origin, prefix)
        elif id(found) not in self.holders and has_attributes(found):
            holder = self.hold(found, path, prefix, origin)
            if not self.change_class(type(found)):
                self._note(holder, "__dict__", holder.before)

    def _was_read(self, holder, name: str, value, frame: types.FrameType) -> None:
        """Takes note that the code of ``frame`` has read an attribute."""
        known = self._known(holder)
        if known is None:
            return
        if known.is_module and name == "training":
            self.modes[id(holder)] = holder
        if known.is_module and name in _NOT_READ and known.prefix:  # the module has guards of it
            return
        own = object.__getattribute__(holder, "__dict__")
        if name in own:
            self._note(known, name, value)
        elif not known.is_module and (name == "__dict__" or not hasattr(type(holder), name)):
            self._note(known, "__dict__", own)  # a reader of its own gave another attribute
        else:
            self._was_missed(holder, name)
        if known.is_module and name not in own and name not in _OF_CLASS \
                and attribute_of(type(holder), name) is value:
            self.meet(value, f"{known.path}.{name}".lstrip("."), known.origin, known.prefix)
        record = self.records.get((id(holder), name))
        if record is not None and name != "__dict__":
            record.reads.add((frame.f_code, frame.f_lasti))
            record.first = value if record.first is MISSING and not record.sets else record.first

    def _known(self, holder) -> Holder | None:
        """A module or an object that is known, in the thread of ``forward``; None for others."""
        known = self.holders.get(id(holder))
        return known if known is not None and known.value is holder and self._is_here() else None

    def _record(self, known: Holder, name: str) -> Record:
        key = id(known.value), name
        if key not in self.records:
            self.records[key] = Record(known, name)
        return self.records[key]

    def _note(self, known: Holder, name: str, value) -> None:
        record = self._record(known, name)
        if record.before is None:
            record.before = Snapshot(value)
            self.meet(value, record.path, known.origin, known.prefix)

    def _was_not_found(self, holder, name: str, frame: types.FrameType) -> None:
        own = object.__getattribute__(holder, "__dict__")
        table = next((table for table in TABLES if name in own.get(table, ())), None)
        if table is None:
            self._was_missed(holder, name)
        else:  # torch.nn.Module.__getattr__ finds it there
            self._was_read(holder, table, own[table], frame)

    def _was_missed(self, holder, name: str) -> None:
        """Takes note that an object itself had no attribute of a name."""
        known = self._known(holder)
        if known is None or name.startswith("__") \
                or known.is_module and (name in _NOT_READ or name in _OF_CLASS):
            return
        record = self._record(known, name)
        if not record.is_missed:
            kind, record.is_missed = type(holder), True
            value = self._numbers.get(kind, {}).get(name, attribute_of(kind, name))
            record.of_class = Snapshot(value) if is_compared(value) else None

    def _was_set(self, holder, name: str, frame: types.FrameType) -> None:
        """Takes note that the code of ``frame`` sets or deletes an attribute."""
        known = self._known(holder)
        if known is not None:
            record = self._record(known, name)
            record.sets.add((frame.f_code, frame.f_lasti))
            record.set_at = self._here()

    def attributes(self, origin: Origin) -> Iterator[HeldAttribute]:
        """What ``forward`` has read and left as it was."""
        for record in sorted(self.records.values(), key=lambda record: record.before is None):
            if record.holder.origin is origin and record.is_as_read():
                yield HeldAttribute(record.holder.value, record.name, record.path,
                                    line_of(record.line()), record.holder.prefix)

    def finish(self) -> None:
        """Gives classes their own methods back."""
        for cls, before in reversed(self._classes.items()):
            for name, method in before.items():
                if method is None:
                    delattr(cls, name)
                else:
                    setattr(cls, name, method)
        self._classes = {}

    def change_class(self, cls: type, running: Callable = lambda holder: holder) -> bool:
        """Gives a class methods that record which attributes are read and set; returns whether that
        is possible. ``running`` returns the object that runs in place of a different one."""
        if cls in self._classes:
            return True
        before = {name: vars(cls).get(name) for name in _METHODS}
        get, put, delete = (getattr(cls, name) for name in _METHODS)

        def getter(holder, name):
            holder = running(holder)
            try:
                value = get(holder, name)
            except AttributeError:
                self._was_not_found(holder, name, sys._getframe(1))
                raise
            self._was_read(holder, name, value, sys._getframe(1))
            return value

        def setter(holder, name, value):
            holder = running(holder)
            self._was_set(holder, name, sys._getframe(1))
            put(holder, name, value)

        def deleter(holder, name):
            holder = running(holder)
            self._was_set(holder, name, sys._getframe(1))
            delete(holder, name)

        try:
            for name, method in zip(_METHODS, (getter, setter, deleter)):
                setattr(cls, name, method)
        except (AttributeError, TypeError):  # its metaclass refuses the first one
            return False
        self._classes[cls] = before
        return True
