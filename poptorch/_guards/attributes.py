"""What ``forward`` does to attributes of modules and objects: noting it, and undoing it."""

import contextlib
import threading
from collections.abc import Callable, Iterator

import torch

from poptorch._base.logging import logger
from poptorch._base.torch_private import fake_tensors
from poptorch._base.value_snapshot import MISSING, objects_within
from poptorch._capture.graph.module_clones import OF_EACH_MODULE, RECURRENT_CACHES, own_attributes
from poptorch._capture.graph.source_location import Places
from poptorch._guards.attribute_reads import TABLES, Holder, Origin, Reads, Record
from poptorch._guards.globals_read import names_outside
from poptorch._guards.guard import Guard, HeldAttribute
from poptorch._guards.outer_name import OuterName
from poptorch._guards.plain_tensors import called
from poptorch._guards.put_back import emptied, holds_fake, refill, warn_of_kept
from poptorch.errors import error_at, place_text


class Attributes:
    """Notes what ``forward`` reads, sets and deletes of modules and objects while it is entered.

    Closures, hooks and objects that attributes hold lead to the user's modules. In the thread that
    captures, what is read, set or deleted there is an attribute of the clone. Modules that are no
    part of the tree, and that ``forward`` does not make, run as they are: what was read of them is
    noted, also their tensors, hooks and mode.

    On leaving it gives tensors without data, in attributes of modules, the values that they have in
    each call. Where they have none, and in objects and containers, it undoes what would leave them
    there, and warns: who reads such an attribute later reads what was there before. A container
    that ``forward`` gives an attribute of an object, without reading what was there before, stays
    with tensors of the device meta: programs fill it with results.

    Args:
        places: finds the user's line.
        clones: what runs in place of each of the user's modules, by the identity of that one.

    Attributes:
        reads: what ``forward`` reads.
        read: the attributes that it read and did not change, by origin.
        value_of: the value that a tensor without data has in each call; None for others.
        managed: the modules that have such values in attributes now, and all that ``forward`` set
            of each: it sets them again where they do not fit.
    """

    def __init__(self, places: Places, clones: dict[int, torch.nn.Module]):
        self._clones = clones
        self._thread: int | None = threading.get_ident()
        # Modules that forward makes; and those outside of the tree, with the tables they had.
        self._made: dict[int, torch.nn.Module] = {}
        self._outside: dict[int, tuple[torch.nn.Module, dict[str, dict]]] = {}
        self.reads = Reads(lambda: threading.get_ident() == self._thread, places.here)
        self.read: dict[Origin, list[HeldAttribute]] = {}
        self.value_of: Callable[[torch.Tensor], torch.Tensor | None] = lambda tensor: None
        self._found_values: dict[int, torch.Tensor | None] = {}
        self.managed: list[tuple[torch.nn.Module, set[str]]] = []
        self._names: list[OuterName] = []
        self._objects: list[tuple[object, str]] = []

    def keep_outside(self, module: torch.nn.Module, arguments) -> None:
        """Records what names outside of a module lead to, by which its ``forward`` may read or set
        something; ``arguments`` of the call may hold functions."""
        self._names, self._objects = names_outside(module, arguments, self.reads.draws)

    def keep(self, module: torch.nn.Module, path: str) -> None:
        """Records the attributes that a module of the tree has now."""
        self.reads.hold(module, path, "self.", Origin.MODULE)

    def warn_of_change(self, tensor: torch.Tensor, place: str) -> None:
        """Warns that ``forward`` changes a tensor in place that is not a parameter or buffer."""
        path = self.name_of(tensor)
        what = f"{called(tensor)} in place that" if path is None else \
            f"the tensor {path} in place, which is a plain attribute and"
        logger.warning(
            "[capture] forward changes %s is no argument, parameter or buffer: its value is "
            "compiled in, each call begins with it, and the tensor gets the values that one call "
            "gives it. For a state that lasts from call to call, give the module a buffer "
            "(register_buffer).%s", what, f"\n  at {place}" if place else "")

    def name_of(self, tensor: torch.Tensor) -> str | None:
        """The path of a plain tensor in the modules, when ``forward`` began; None: it had none."""
        for holder in self.reads.holders.values():
            for name, value in holder.before.items() if holder.is_module else ():
                if name not in OF_EACH_MODULE:
                    for path, part in objects_within(value, f"{holder.path}.{name}".lstrip(".")):
                        if part is tensor:
                            return path
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
            "recreates it in each call and keeps nothing of it. Create it in __init__, or call the "
            "module once on the CPU before it is compiled.%s", f"{owner}.{name}".lstrip("."),
            f"\n  at {place}" if place else "")

    def line(self, module: torch.nn.Module, name: str) -> tuple[str, int] | None:
        """``(file, line)`` where the attribute was last set or deleted; None if it is not known."""
        record = self.reads.records.get((id(module), name))
        return record and record.set_at

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

    def check_outside(self) -> None:
        """Raises an Error when ``forward`` changed the tables of a module outside of the tree."""
        for module, tables in self._outside.values():
            kind = type(module).__qualname__
            for table, name in _changed(own_attributes(module), tables):
                raise error_at(
                    f"[capture] forward sets or deletes {name} of a {kind} that is no part of the "
                    f"model, which is in its table {table}: a program keeps the state of parts "
                    f"only. Make the {kind} a part of the model, as an attribute or in a "
                    f"ModuleList, and change tensors by `copy_(value)`.",
                    self.line(module, name), "")

    def _running(self, module: torch.nn.Module) -> torch.nn.Module:
        """What runs in place of a module in this thread. Takes note of one that is new."""
        key = id(module)
        if threading.get_ident() != self._thread or key in self._made or key in self.reads.holders:
            return module
        if key not in self._clones:
            own = own_attributes(module)
            if "_parameters" not in own:  # torch.nn.Module.__init__ did not run yet
                self._made[key] = module
                return module
            self._outside[key] = module, {table: dict(own[table]) for table in TABLES
                                          if isinstance(own.get(table), dict)}
            self.reads.hold(module, type(module).__qualname__, "", Origin.MODULE)
        return self._clones.get(key, module)

    def __enter__(self):
        self.reads.change_class(torch.nn.Module, self._running)
        for value, path in self._objects:
            self.reads.enter(value, path, Origin.OUTSIDE)
        return self

    def __exit__(self, kind, *_):
        self.reads.finish()
        for module, tables in self._outside.values():
            for table in {table for table, _ in _changed(own_attributes(module), tables)}:
                own_attributes(module)[table].clear()
                own_attributes(module)[table].update(tables[table])
        if kind is None:
            self.read = {origin: list(self.reads.attributes(origin)) for origin in Origin}
        told = self._put_back(kind is None)
        if kind is None:
            for kept in told:
                warn_of_kept(*kept)
            for observed in (*self.reads.records.values(), *self._names):
                observed.warn_of_change(self._value_of)
            self.reads.draws.warn()

    def guards_outside(self) -> list[Guard]:
        """The guards of what ``forward`` may have read of globals and variables around it, and has
        not changed."""
        found = [name.guard() for name in self._names if name.is_unchanged()]
        return found + [guard for held in self.read[Origin.OUTSIDE] for guard in held.guards()]

    def _put_back(self, is_complete: bool) -> Iterator[tuple]:
        """Takes tensors without data out of attributes and containers; what to warn of."""
        managed, told = {}, {}
        for holder in self.reads.holders.values():
            for name, record in self._left(holder):
                own, before = own_attributes(holder.value), holder.before
                value = own.get(name, MISSING)
                is_cache = holder.is_module and name in RECURRENT_CACHES
                lasting = left = None
                if holder.is_module and is_complete and not is_cache:
                    lasting = self._lasting(value)
                elif is_complete and record.is_set_first:
                    left = emptied(value)
                if lasting is not None:
                    own[name], managed[id(holder.value)] = lasting, holder.value
                elif left is not None:
                    own[name] = left
                elif name in before:
                    own[name] = before[name]
                else:
                    del own[name]
                if lasting is None and not is_cache:
                    # The same line of several layers is one mistake.
                    key = record.set_at or type(holder.value), name
                    told.setdefault(key, (record.path, record.place(), left is not None))
        for record in self.reads.records.values():
            if record.before is not None and refill(record.before):
                key = record.set_at or type(record.holder.value), record.name
                told.setdefault(key, (record.path, record.place()))
        self._names = [name for name in self._names if not name.put_back() or told.setdefault(
            id(name), (name.path, "")) is None]
        self.managed = [(module, {name for (key, name), record in self.reads.records.items()
                                  if key == id(module) and record.sets})
                        for module in managed.values()]
        return told.values()

    def _left(self, holder: Holder) -> list[tuple[str, Record]]:
        """The attributes in which there is a tensor without data that was not there before."""
        is_module, own = holder.is_module, own_attributes(holder.value)
        return [(name, self.reads.records.get((id(holder.value), name)) or Record(holder, name))
                for name, value in own.items()
                if value is not holder.before.get(name, MISSING)
                and not (is_module and name in OF_EACH_MODULE)
                and (is_module and name in RECURRENT_CACHES or holds_fake(value, is_deep=True))]

    def _lasting(self, value):
        """A tensor, or a tuple of them, with the values that they have in each call, or None."""
        parts = value if type(value) is tuple else (value,)
        found = tuple(map(self._value_of, parts))
        is_unknown = any(there is None and part is not None for part, there in zip(parts, found))
        if is_unknown or holds_fake(found, is_deep=True):
            return None
        return found if type(value) is tuple else found[0]

    def _value_of(self, part):
        """A tensor without data as one with the values that it has in each call, or None; others as
        they are."""
        if not fake_tensors.is_fake(part):
            return part
        if id(part) not in self._found_values:
            self._found_values[id(part)] = self.value_of(part)
        return self._found_values[id(part)]


def _changed(own: dict, tables: dict[str, dict]) -> Iterator[tuple[str, str]]:
    """The tables of a module, and the names in them, that changed."""
    for table, before in tables.items():
        for name in {**before, **own[table]}:
            if own[table].get(name, MISSING) is not before.get(name, MISSING):
                yield table, name
