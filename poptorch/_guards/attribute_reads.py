"""The attributes that ``forward`` reads, of modules and of the objects that they hold.

An object that was read from a module, as a configuration is, gets readers and writers of its class
that take note, for as long as ``forward`` runs: what of it is read, and what ``forward`` sets.
Containers are taken as a whole, as none reports what of it is read; so are objects whose class
cannot be changed (``SimpleNamespace``).
"""

import functools
import sys
import threading
import types
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import torch

from poptorch._base.logging import logger
from poptorch._base.torch_private import tracing as private
from poptorch._base.value_snapshot import (
    Snapshot,
    attribute_of,
    attributes_of,
    has_attributes,
    has_slots,
    is_compared,
    objects_within,
)
from poptorch._capture.graph.module_clones import OF_EACH_MODULE, RECURRENT_CACHES
from poptorch._guards.guard import line_of, table_of
from poptorch._guards.host_randomness import Draws
from poptorch._guards.python_state import Counters, is_flag

_METHODS = ("__getattribute__", "__setattr__", "__delattr__")
_NOT_READ = frozenset({*OF_EACH_MODULE, *RECURRENT_CACHES})
_OF_CLASS = frozenset(dir(torch.nn.Module))


# In place of the module that leads to an object, where a name outside of forward does.
OUTER = object()


class Place(NamedTuple):
    """An attribute.

    Attributes:
        holder: the object that has it.
        name: the attribute, or ``__dict__`` for all of the object's.
        module: the module that leads to the object; None: an argument does; ``OUTER``: a name
            outside of ``forward``.
        path: of the attribute, from the module or with the name of the argument.
    """

    holder: object
    name: str
    module: object
    path: str


class Reads:
    """Notes what is read and set while ``forward`` runs.

    Attributes:
        kept: the paths where ``forward`` has put tensors without data, after :meth:`finish`.
        modes: the modules of which ``training`` was read, by identity.
        draws: what ``forward`` draws from.
        counters: the lines that read and set numbers.
    """

    def __init__(self):
        self.draws = Draws().of_process()
        self.counters = Counters()
        self.kept: list[str] = []
        self.modes: dict[int, torch.nn.Module] = {}
        self._found: dict[tuple[int, str], tuple[Place, Snapshot]] = {}
        self._set: set[tuple[int, str]] = set()
        # Those that were read before they were set to such a value, in order.
        self._flags: dict[tuple[int, str], None] = {}
        # Objects that were read, by identity: the module that leads to each, and the path.
        self._objects: dict[int, tuple[object, torch.nn.Module | None, str]] = {}
        # What stood in classes in place of the readers and writers.
        self._classes: dict[type, dict] = {}
        # Attributes that modules and such objects were asked for, and did not have themselves, and
        # what their classes had.
        self._missed: dict[tuple[int, str], tuple[Place, Snapshot | None]] = {}
        # Attributes of such objects that were set, as they were before; None: they were not there.
        self._before_set: dict[tuple[int, str], tuple[object, str, tuple | None]] = {}
        self._thread = threading.get_ident()

    def of_module(self, module: torch.nn.Module, name: str, value, is_outside: bool) -> None:
        """Takes note that an attribute of a module was read, one of the object itself; of a module
        outside of the tree also what each module has, as nobody else compares it."""
        if name == "training":
            self.modes[id(module)] = module
        if (is_outside or name not in _NOT_READ) and (id(module), name) not in self._found:
            self._add(Place(module, name, module, name), value)

    def of_argument(self, value, path: str) -> None:
        """Takes note, from now on, of what is read of the objects in an argument."""
        for path, part in objects_within(value, path):
            self.draws.meet(part, path)
            self._enter(part, None, path)

    def of_outer(self, value, path: str) -> None:
        """Takes note, from now on, of what is read of an object that names outside lead to."""
        self._enter(value, OUTER, path)

    def of_class(self, module: torch.nn.Module, name: str, value) -> None:
        """Takes note, from now on, of what is read of objects in an attribute of a class."""
        if name not in _OF_CLASS and attribute_of(type(module), name) is value \
                and not isinstance(value, private.FakeTensor):
            for path, part in objects_within(value, name):
                self._enter(part, module, path)

    def was_missed(self, module: torch.nn.Module, name: str) -> None:
        """Takes note that a module itself had no attribute of a name."""
        if not name.startswith("__") and name not in _NOT_READ and name not in _OF_CLASS:
            self._miss(Place(module, name, module, name))

    def of_container(self, value, path: str) -> None:
        """Takes note, from now on, of what is read of a container itself, which is an argument."""
        self._enter(value, None, path)

    def line(self, place: Place) -> str:
        """The line of the user's that reads an attribute first, if it is known."""
        return line_of(self.counters.line(place.holder, place.name))

    def path_of(self, holder, name: str) -> str | None:
        """The path of an attribute of an object that was read; None for another one's."""
        return f"{self._objects[id(holder)][2]}.{name}" if id(holder) in self._objects else None

    def changes(self) -> Iterator[tuple[str, str, str]]:
        """What containers held that ``forward`` has changed and reads, and what classes had: the
        path, what was there and what is.

        What it only adds to a container counts nothing, as a cache is filled like that, but to
        a list of which it takes the length or the sum.
        """
        for place, snapshot in self._found.values():
            if table_of(place.holder, place.name).get(place.name) is not snapshot.value:
                continue
            found = snapshot.change(place.path)
            is_read = has_slots(snapshot.value) \
                or self.counters.readers(place.holder, place.name) > 1
            if found is not None and (found.is_gone or is_read):
                yield found[:3]
            elif found is None and self._is_counted(place, snapshot):
                yield place.path, snapshot.text(), Snapshot(snapshot.value).text()
        for (_, name), (place, snapshot) in self._missed.items():
            now = attribute_of(type(place.holder), name)
            found = snapshot and snapshot.difference(now, place.path)
            if found is not None:
                yield found

    def _is_counted(self, place: Place, snapshot: Snapshot) -> bool:
        return isinstance(snapshot.value, (list, deque)) and not holds_fake(snapshot.value) \
            and (id(place.holder), place.name) not in self._set \
            and self.counters.counts_items(place.holder, place.name) \
            and snapshot.difference(snapshot.value, "") is not None

    def flags(self) -> Iterator[tuple[object, str, object, object]]:
        """The flags that ``forward`` read before it gave them another value: the object, the name,
        and the value before and after."""
        for key in self._flags:
            place, snapshot = self._found[key]
            was, now = snapshot.value, table_of(place.holder, place.name).get(place.name)
            if is_flag(was) and type(now) is type(was) and now != was:
                yield place.holder, place.name, was, now

    def was_set(self, holder, name: str, value=None) -> None:
        """Takes note that an attribute was set to a value, or deleted."""
        key = id(holder), name
        if is_flag(value) and key in self._found and key not in self._set:
            self._flags[key] = None
        self._set.add(key)

    def finish(self, others=()) -> list[Place]:
        """Gives classes their own methods back, and objects what they held in place of tensors
        without data; ``kept`` has the paths of these.

        Args:
            others: containers, by identity, that somebody else puts back.

        Returns:
            What was read, and what ``forward`` itself has not changed since.
        """
        for cls, before in reversed(self._classes.items()):
            for name, method in before.items():
                if method is None:
                    delattr(cls, name)
                else:
                    setattr(cls, name, method)
        places = [place for key, (place, snapshot) in self._found.items()
                  if key not in self._set and self._is_unchanged(place, snapshot)
                  and not holds_fake(snapshot.value)]
        places += [place for key, (place, _) in self._missed.items() if key not in self._set
                   and place.name not in table_of(place.holder, place.name)]
        self._put_back(others)
        self._found, self._objects, self._classes = {}, {}, {}
        self._missed, self._before_set = {}, {}
        return places

    def _put_back(self, others) -> None:
        for (_, name), (holder, path, before) in self._before_set.items():
            table = object.__getattribute__(holder, "__dict__")
            if name in table and holds_fake(table[name]):
                self.kept.append(path)
                if before is None:
                    del table[name]
                else:
                    table[name] = before[0]
        for place, snapshot in self._found.values():
            for container, parts in snapshot.held:
                if id(container) not in others and holds_fake(container):
                    self.kept.append(place.path)
                    fill(container, parts)

    def _note_set(self, holder, name: str) -> None:
        known = self._known(holder)
        if known is not None:
            table = object.__getattribute__(holder, "__dict__")
            self._before_set.setdefault((id(holder), name), (
                holder, f"{known[2]}.{name}", (table[name],) if name in table else None))

    def _is_unchanged(self, place: Place, snapshot: Snapshot) -> bool:
        table = table_of(place.holder, place.name)
        return place.name in table and snapshot.difference(table[place.name], "") is None

    def _add(self, place: Place, value) -> None:
        self._found[id(place.holder), place.name] = place, Snapshot(value)
        if not isinstance(value, private.FakeTensor):
            for path, part in objects_within(value, place.path):
                self.draws.meet(part, path)
                self._enter(part, place.module, path)

    def _enter(self, found, module: torch.nn.Module, path: str) -> None:
        if type(found) is types.MethodType:
            found, path = found.__self__, f"{path}.__self__"
        elif type(found) is functools.partial:
            for inner, part in objects_within([found.func, found.args, found.keywords], path):
                self._enter(part, module, inner)
            return
        if id(found) in self._objects or not has_attributes(found):
            return
        self._objects[id(found)] = found, module, path
        if not self._change(type(found)):
            self._add_all(found)

    def _add_all(self, holder) -> None:
        _, module, path = self._objects[id(holder)]
        place = Place(holder, "__dict__", module, f"{path}.__dict__")
        self._add(place, object.__getattribute__(holder, "__dict__"))

    def _read(self, holder, name: str, value) -> None:
        known = self._known(holder)
        if known is None or (id(holder), name) in self._found:
            return
        if name in object.__getattribute__(holder, "__dict__"):
            self._add(Place(holder, name, known[1], f"{known[2]}.{name}"), value)
        elif name == "__dict__" or not hasattr(type(holder), name):  # a reader gave another one
            self._add_all(holder)
        else:  # the class has it
            self._note_missed(holder, name)

    def _note_missed(self, holder, name: str) -> None:
        known = self._known(holder)
        if known is not None and not name.startswith("__"):
            self._miss(Place(holder, name, known[1], f"{known[2]}.{name}"))

    def _miss(self, place: Place) -> None:
        key = id(place.holder), place.name
        if key not in self._missed:
            value = self.counters.class_value(type(place.holder), place.name)
            self._missed[key] = place, Snapshot(value) if is_compared(value) else None

    def _known(self, holder) -> tuple | None:
        """An object that was read, the module that leads to it and the path; None for others."""
        known = self._objects.get(id(holder))
        is_it = known is not None and known[0] is holder \
            and threading.get_ident() == self._thread
        return known if is_it else None

    def _change(self, cls: type) -> bool:
        """Gives a class readers and writers that take note; whether it can be given them."""
        if cls in self._classes:
            return True
        before = {name: vars(cls).get(name) for name in _METHODS}
        get, put, delete = (getattr(cls, name) for name in _METHODS)

        def getter(holder, name):
            try:
                value = get(holder, name)
            except AttributeError:
                self._note_missed(holder, name)
                raise
            self._read(holder, name, value)
            if name != "__dict__" and self._known(holder) is not None:
                self.counters.was_read(holder, name, value, sys._getframe(1))
            return value

        def setter(holder, name, value):
            self.was_set(holder, name, value)
            self._note_set(holder, name)
            if self._known(holder) is not None:
                self.counters.was_set(holder, name, value, sys._getframe(1))
            put(holder, name, value)

        def deleter(holder, name):
            self.was_set(holder, name)
            delete(holder, name)

        try:
            for name, method in zip(_METHODS, (getter, setter, deleter)):
                setattr(cls, name, method)
        except (AttributeError, TypeError):  # its metaclass refuses the first one
            return False
        self._classes[cls] = before
        return True


def warn_of_kept(paths: list[str]) -> None:
    """Warns of tensors without data that ``forward`` has put where they cannot stay."""
    for path in dict.fromkeys(paths):
        logger.warning(
            "[capture] forward keeps a tensor in %s, but its values are on the device: "
            "afterwards it is as it was before. Return the tensor; for a state that lasts, use "
            "register_buffer and copy_().", path)


def holds_fake(value) -> bool:
    """Whether there is a tensor without data in a container."""
    return any(isinstance(part, private.FakeTensor) for _, part in objects_within(value, ""))


def fill(container, parts: list[tuple]) -> None:
    """Gives a container what it had."""
    if has_slots(container):
        for name in attributes_of(container):
            object.__delattr__(container, name)
        for name, value in parts:
            object.__setattr__(container, name, value)
        return
    container.clear()
    if isinstance(container, dict):
        container.update(parts)
    else:
        getattr(container, "update" if isinstance(container, set) else "extend")(
            [part for _, part in parts])
