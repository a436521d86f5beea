"""The attributes that ``forward`` reads, of modules and of the objects that they hold.

An object that was read from a module, as a configuration is, gets readers and writers of its class
that take note, for as long as ``forward`` runs: what of it is read, and what ``forward`` sets.
Containers are taken as a whole, as none reports what of it is read; so are objects whose class
cannot be changed (``SimpleNamespace``).
"""

import functools
import threading
import types
from typing import NamedTuple

import torch

from poptorch._capture import torch_private as private
from poptorch._capture.clones import OF_EACH_MODULE, RECURRENT_CACHES
from poptorch._capture.draws import Draws
from poptorch._logging import logger
from poptorch._snapshot import Snapshot, attributes_of, has_attributes, has_slots, objects_within

_METHODS = ("__getattribute__", "__setattr__", "__delattr__")
_NOT_READ = frozenset({*OF_EACH_MODULE, *RECURRENT_CACHES})
_OF_CLASS = frozenset(dir(torch.nn.Module))


class Place(NamedTuple):
    """An attribute.

    Attributes:
        holder: the object that has it.
        name: the attribute, or ``__dict__`` for all of the object's.
        module: the module that leads to the object; None: an argument does.
        path: of the attribute, from the module or with the name of the argument.
    """

    holder: object
    name: str
    module: torch.nn.Module | None
    path: str


class Reads:
    """Notes what is read and set while ``forward`` runs.

    Attributes:
        kept: the paths where ``forward`` has put tensors without data, after :meth:`finish`.
        modes: the modules of which ``training`` was read, by identity.
        draws: what ``forward`` draws from.
    """

    def __init__(self):
        self.draws = Draws().of_process()
        self.kept: list[str] = []
        self.modes: dict[int, torch.nn.Module] = {}
        self._found: dict[tuple[int, str], tuple[Place, Snapshot]] = {}
        self._set: set[tuple[int, str]] = set()
        # Objects that were read, by identity: the module that leads to each, and the path.
        self._objects: dict[int, tuple[object, torch.nn.Module | None, str]] = {}
        # What stood in classes in place of the readers and writers.
        self._classes: dict[type, dict] = {}
        # Attributes that modules and such objects were asked for, and did not have themselves.
        self._missed: dict[tuple[int, str], Place] = {}
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

    def was_missed(self, module: torch.nn.Module, name: str) -> None:
        """Takes note that a module itself had no attribute of a name."""
        if not name.startswith("__") and name not in _NOT_READ and name not in _OF_CLASS:
            self._missed.setdefault((id(module), name), Place(module, name, module, name))

    def of_container(self, value, path: str) -> None:
        """Takes note, from now on, of what is read of a container itself, which is an argument."""
        self._enter(value, None, path)

    def has_read(self, module: torch.nn.Module, name: str) -> bool:
        """Whether an attribute of a module was read so far."""
        return (id(module), name) in self._found

    def was_set(self, holder, name: str) -> None:
        """Takes note that an attribute was set or deleted."""
        self._set.add((id(holder), name))

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
        places += [place for key, place in self._missed.items() if key not in self._set
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
            self._missed.setdefault((id(holder), name), Place(
                holder, name, known[1], f"{known[2]}.{name}"))

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
            return value

        def setter(holder, name, value):
            self.was_set(holder, name)
            self._note_set(holder, name)
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


def table_of(holder, name: str) -> dict:
    """Where an attribute of that name stands, see :class:`Place`."""
    own = object.__getattribute__(holder, "__dict__")
    return {name: own} if name == "__dict__" else own
