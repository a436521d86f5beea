"""What ``forward`` does to plain attributes of modules: where it sets them, and undoing it."""

import contextlib
import functools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator

import torch

from poptorch._base.logging import logger
from poptorch._base.torch_private import tracing as private
from poptorch._base.value_snapshot import attributes_of, objects_within
from poptorch._capture.graph.module_clones import OF_EACH_MODULE, RECURRENT_CACHES, own_attributes
from poptorch._capture.graph.source_location import Places
from poptorch._capture.graph.unknown_sizes import UnknownSize
from poptorch._guards.attribute_reads import Place, Reads, warn_of_kept
from poptorch._guards.python_state import warn_of_python_state
from poptorch.errors import error_at, place_text

_MUTABLE = (list, dict, deque)
_CONTAINERS = (*_MUTABLE, tuple)
_WITHOUT_DATA = (private.FakeTensor, UnknownSize)
_TABLES = ("_parameters", "_buffers", "_modules")
# By these a module is filled, a new one or a copy.
_FILLING = ("__init__", "__setstate__")
_LOOKED_AT = (*_CONTAINERS, *_WITHOUT_DATA)


class Attributes:
    """Notes where attributes of modules are set or deleted while it is entered.

    Closures, hooks and objects that attributes hold lead to the user's modules. In the thread that
    captures, what is read, set or deleted there is an attribute of the clone. Modules that are no
    part of the tree, and that ``forward`` does not make, run as they are: what was read of them is
    noted, also their tensors, hooks and mode.

    On leaving it gives tensors without data, in attributes of the user's modules, the values that
    they have in each call. Where they have none, it undoes what would leave them there, and warns:
    who reads such an attribute later reads what was there before.

    Args:
        places: finds the user's line.
        clones: what runs in place of each of the user's modules, by the identity of that one.

    Attributes:
        reads: what ``forward`` reads, of modules and of objects.
        value_of: the value that a tensor without data has in each call; None for others.
        managed: the modules that have such values in attributes now, and all that ``forward`` set
            of each: it sets them anew where they do not fit.
    """

    def __init__(self, places: Places, clones: dict[int, torch.nn.Module]):
        self._places = places
        self._clones = clones
        self._thread: int | None = threading.get_ident()
        self._known = set(map(id, clones.values()))
        # Modules that forward makes, by identity.
        self._made: dict[int, torch.nn.Module] = {}
        # Those outside of the tree that it reads, with the tables that they had.
        self._outside: dict[int, tuple[torch.nn.Module, dict[str, dict]]] = {}
        self._before: list[tuple[torch.nn.Module, str, dict]] = []
        # Mutable containers in attributes by identity, with what they held.
        self._contents: dict[int, tuple[object, list | dict]] = {}
        self._lines: dict[tuple[int, str], tuple[str, int] | None] = {}
        self.reads = Reads()
        self.value_of: Callable[[torch.Tensor], torch.Tensor | None] = lambda tensor: None
        self._found_values: dict[int, torch.Tensor | None] = {}
        self.managed: list[tuple[torch.nn.Module, set[str]]] = []
        self._depended_on: list[Place] = []

    def keep(self, module: torch.nn.Module, path: str) -> None:
        """Records the attributes that a module has now, and what their containers hold."""
        before = _plain(module)
        self._before.append((module, path, before))
        self.reads.counters.of_class(type(module))
        for value in _within(before):
            if isinstance(value, dict):
                self._contents[id(value)] = value, dict(value)
            elif isinstance(value, _MUTABLE):
                self._contents[id(value)] = value, list(value)

    def warn_of_change(self, tensor: torch.Tensor) -> None:
        """Warns that ``forward`` changes a tensor in place that is no parameter or buffer."""
        found = self.name_of(tensor)
        if found is not None:
            logger.warning(
                "[capture] forward changes the tensor %s in place, which is a plain attribute: its "
                "value is compiled in, and each call begins with it. For a state that lasts from "
                "call to call, make it with register_buffer(%r, ...).", *found)
            return
        logger.warning(
            "[capture] forward changes a tensor of the sizes %s in place that is no argument, "
            "parameter or buffer: its value is compiled in, and each call begins with it. For a "
            "state that lasts from call to call, give the module a buffer (register_buffer).",
            list(tensor.shape))

    def name_of(self, tensor: torch.Tensor) -> tuple[str, str] | None:
        """Where a plain tensor was when ``forward`` began: the path, and the attribute's name."""
        for _, path, attributes in self._before:
            for name, value in attributes.items():
                place = _place_in(value, tensor)
                if place is not None:
                    return f"{path}.{name}{place}".lstrip("."), name
        return None

    def warn_of_new(self, module: torch.nn.Module, owner: str, name: str) -> None:
        """Warns of a parameter, a buffer or a module with such ones that ``forward`` made.

        Args:
            module: that has it.
            owner: the path of that module.
            name: of what was made.
        """
        place = place_text(self.line(module, name), owner)
        logger.warning(
            "[capture] forward makes %s, a parameter, a buffer or a module with these: the program "
            "makes it anew in each call and keeps nothing of it. Make it in __init__, or call the "
            "module once on the CPU before it is compiled.%s", f"{owner}.{name}".lstrip("."),
            f"\n  at {place}" if place else "")

    def line(self, module: torch.nn.Module, name: str) -> tuple[str, int] | None:
        """``(file, line)`` where the attribute was last set or deleted; None if it is not known."""
        return self._lines.get((id(module), name))

    def read(self) -> list[Place]:
        """The attributes of modules, and of objects that they hold, that ``forward`` read and did
        not change: a change of one of them would change the program."""
        return self._depended_on

    @contextlib.contextmanager
    def of_users(self):
        """While it is entered, all modules have the attributes of their own: for what runs on the
        host."""
        thread, self._thread = self._thread, None
        try:
            with self.reads.draws.without():
                yield
        finally:
            self._thread = thread

    def is_outside(self, module: torch.nn.Module) -> bool:
        """Whether a module that ``forward`` read is no part of the tree, and was there before."""
        return id(module) in self._outside

    def check_outside(self) -> None:
        """Raises an Error when ``forward`` changed the tables of a module outside of the tree."""
        for module, table, name in self._changed_outside():
            kind = type(module).__qualname__
            raise error_at(
                f"[capture] forward sets or deletes {name} of a {kind} that is no part of the "
                f"model, which is in its table {table}: a program keeps the state of parts only. "
                f"Make the {kind} a part of the model, as an attribute or in a ModuleList, and "
                f"change tensors by `copy_(value)`.", self.line(module, name), "")

    def _changed_outside(self) -> Iterator[tuple[torch.nn.Module, str, str]]:
        for module, tables in self._outside.values():
            for table, before in tables.items():
                now = own_attributes(module)[table]
                for name in {**before, **now}:
                    if now.get(name, self) is not before.get(name, self):
                        yield module, table, name

    def _meet(self, module: torch.nn.Module) -> bool:
        """Takes note of a module that is read or changed; whether it is outside of the tree."""
        key = id(module)
        if key in self._known or key in self._made or threading.get_ident() != self._thread:
            return False
        if key not in self._outside:
            own = own_attributes(module)
            self._outside[key] = module, {table: dict(own[table]) for table in _TABLES
                                          if isinstance(own.get(table), dict)}
            self.keep(module, type(module).__qualname__)
        return True

    def _running(self, module: torch.nn.Module) -> torch.nn.Module:
        """What runs in place of a module in this thread."""
        is_here = threading.get_ident() == self._thread
        return self._clones.get(id(module), module) if is_here else module

    def _get(self, module, name: str):
        module = self._running(module)
        own, is_outside = own_attributes(module), self._meet(module)
        try:
            value = super(torch.nn.Module, module).__getattribute__(name)
        except AttributeError:
            table = next((table for table in _TABLES if name in own.get(table, ())), None)
            if table is None:
                self.reads.was_missed(module, name)
            elif is_outside:
                self.reads.of_module(module, table, own[table], is_outside)
            raise
        if name in own:
            self.reads.of_module(module, name, value, is_outside)
        else:  # the class has it
            self.reads.was_missed(module, name)
            self.reads.of_class(module, name, value)
        if name not in OF_EACH_MODULE and threading.get_ident() == self._thread:
            self.reads.counters.was_read(module, name, value, sys._getframe(2))
        return value

    def __enter__(self):
        self._set, self._delete = torch.nn.Module.__setattr__, torch.nn.Module.__delattr__

        def set_attribute(module, name, value):
            module = self._running(module)
            self._meet(module)
            self._lines[id(module), name] = self._places.here()
            if threading.get_ident() == self._thread:
                self.reads.counters.was_set(module, name, value, sys._getframe(1))
            self.reads.was_set(module, name, value)
            self._set(module, name, value)

        def delete_attribute(module, name):
            module = self._running(module)
            self._meet(module)
            self._lines[id(module), name] = self._places.here()
            self.reads.was_set(module, name)
            self._delete(module, name)

        self._getter = vars(torch.nn.Module).get("__getattribute__")
        torch.nn.Module.__getattribute__ = lambda module, name: self._get(module, name)
        torch.nn.Module.__setattr__ = set_attribute
        torch.nn.Module.__delattr__ = delete_attribute
        self._filling = {name: getattr(torch.nn.Module, name) for name in _FILLING}
        for name, method in self._filling.items():
            setattr(torch.nn.Module, name, self._noting_made(method))
        return self

    def _noting_made(self, method):
        @functools.wraps(method)
        def call(module, *args, **kwargs):
            if threading.get_ident() == self._thread and id(module) not in self._known:
                self._made[id(module)] = module
                self._outside.pop(id(module), None)
            return method(module, *args, **kwargs)

        return call

    def __exit__(self, kind, *_):
        if self._getter is None:
            del torch.nn.Module.__getattribute__
        else:
            torch.nn.Module.__getattribute__ = self._getter
        torch.nn.Module.__setattr__, torch.nn.Module.__delattr__ = self._set, self._delete
        for name, method in self._filling.items():
            setattr(torch.nn.Module, name, method)
        for module, tables in self._outside.values():
            _put_tables_back(own_attributes(module), tables)
        if kind is None:
            self._warn_of_counters()
        self._depended_on = self.reads.finish(self._contents)
        if kind is None:
            warn_of_kept(self.reads.kept)
            self.reads.draws.warn()
        told, managed = set(), {}
        for module, path, before in self._before:
            if id(module) in self._made:  # it was met before its class filled it
                continue
            attributes = _plain(module)
            made = {name for name, value in attributes.items()
                    if (id(module), name) in self._lines and _object_holds_fake(value)}
            if not made and not _holds_fake(attributes) and RECURRENT_CACHES[0] not in attributes:
                continue  # as nearly always
            for name, value in attributes.items():
                is_cache, is_fake = name in RECURRENT_CACHES, name in made or _holds_fake(value)
                stays = is_fake and kind is None and not is_cache
                lasting = self._lasting(value) if stays else None
                if lasting is not None:
                    module.__dict__[name] = lasting
                    managed[id(module)] = module
                    continue
                if is_fake or is_cache:
                    self._put_back(module.__dict__, name, before)
                # The same line of several layers is one mistake.
                key = self.line(module, name) or type(module), name
                if stays and key not in told:
                    told.add(key)
                    self._warn(module, path, name, name in before)
        self.managed = [(module, {name for key, name in self._lines if key == id(module)})
                        for module in managed.values()]

    def _warn_of_counters(self) -> None:
        """Warns of what ``forward`` computes with and changes, so that in PyTorch its next call
        would compute with other values."""
        for holder, name, was, now in self.reads.flags():
            what, place = self._named(holder, name)
            if what is not None:
                warn_of_python_state(what, repr(was), repr(now), place)
        for holder, name, was, now, line in self.reads.counters.counted(self._values_of):
            what, place = self._named(holder, name)
            if what is not None:
                warn_of_python_state(what, was, now, place or place_text(line))
        for change in self.reads.changes():
            warn_of_python_state(*change)

    def _named(self, holder, name: str) -> tuple[str | None, str]:
        """An attribute as a message names it, and the place that sets it, if it is a module's;
        None for one of what ``forward`` makes, which is made anew in each call."""
        for module, path, _ in self._before:
            if module is holder and id(module) not in self._made:
                where = f"self.{path}." if path else "self."
                return where + name, place_text(self.line(holder, name), path)
        return self.reads.path_of(holder, name), ""

    def _lasting(self, value):
        """A tensor, or a tuple of them, with the values that they have in each call, or None."""
        parts = value if type(value) is tuple else (value,)
        found = [self._values_of(part) for part in parts]
        is_unknown = any(there is None and part is not None for part, there in zip(parts, found))
        if is_unknown or _object_holds_fake(found):
            return None
        return tuple(found) if type(value) is tuple else found[0]

    def _values_of(self, part):
        """A tensor without data as one with the values that it has in each call, or None; others as
        they are."""
        if not isinstance(part, private.FakeTensor):
            return part
        if id(part) not in self._found_values:
            self._found_values[id(part)] = self.value_of(part)
        return self._found_values[id(part)]

    def _put_back(self, attributes: dict, name: str, before: dict) -> None:
        if name not in before:
            del attributes[name]
            return
        attributes[name] = before[name]
        for value in _within(before[name]):  # each is put back before its parts are looked at
            if id(value) not in self._contents:
                continue
            value.clear()
            if isinstance(value, dict):
                value.update(self._contents[id(value)][1])
            else:
                value.extend(self._contents[id(value)][1])

    def _warn(self, module: torch.nn.Module, path: str, name: str, was_there: bool) -> None:
        place = place_text(self.line(module, name), path)
        logger.warning(
            "[capture] forward keeps a tensor in the attribute %s, but its values are on the "
            "device: afterwards the attribute is %s. Return the tensor; for a state that lasts, "
            "use register_buffer and `self.%s.copy_(value)`.%s", name,
            "as it was before" if was_there else "gone", name, f"\n  at {place}" if place else "")


def _place_in(value, tensor: torch.Tensor) -> str | None:
    """Where a tensor is in a value: ``""`` if it is the value, ``[0]`` in a list; None: nowhere."""
    places, seen = [(value, "")], set()
    while places:
        value, place = places.pop()
        if value is tensor:
            return place
        if isinstance(value, _CONTAINERS) and id(value) not in seen:
            seen.add(id(value))
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            places += [(part, f"{place}[{key!r}]") for key, part in parts]
    return None


def _plain(module: torch.nn.Module) -> dict:
    return {name: value for name, value in own_attributes(module).items()
            if name not in OF_EACH_MODULE}


def _put_tables_back(own: dict, tables: dict[str, dict]) -> None:
    for name, before in tables.items():
        if [*map(id, own[name].values())] != [*map(id, before.values())]:
            own[name].clear()
            own[name].update(before)


def _holds_fake(value) -> bool:
    return any(isinstance(part, _WITHOUT_DATA) for part in _within(value))


def _object_holds_fake(value) -> bool:
    """Whether there is a tensor without data in an object, or behind the objects that it holds."""
    seen, left = set(), [value]
    while left:
        value = left.pop()
        if isinstance(value, _WITHOUT_DATA):
            return True
        if id(value) not in seen:
            seen.add(id(value))
            left += attributes_of(value).values()
            left += [part for _, part in objects_within(value, "") if part is not value]
    return False


def _within(value) -> Iterator:
    """A value and what is in its containers, each container once, as it may hold itself."""
    seen, left = set(), [value]
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        yield value
        if isinstance(value, _CONTAINERS):
            seen.add(id(value))
            parts = value.values() if isinstance(value, dict) else value
            left += [part for part in parts if isinstance(part, _LOOKED_AT)]
