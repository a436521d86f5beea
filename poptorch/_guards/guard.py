"""Guards: the values that a program was specialized on, and the check that they still hold.

A :class:`Guard` is one value that decided what was compiled: its source, a function that reads it,
and the expected value. A call checks all guards of its program at once (:class:`GuardSet`). A
:class:`Change` names a guard that does not hold; the executor then compiles the model again.
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from poptorch import _C
from poptorch._base.value_snapshot import MISSING, Snapshot, attribute_of, is_compared
from poptorch.errors import Error, place_text

_WRITTEN, _CONVERTED = _C.TensorWatch.WRITTEN, _C.TensorWatch.CONVERTED


class Kind(enum.Enum):
    """What follows from a change."""

    VALUE = enum.auto()  # the model is compiled again
    TENSOR = enum.auto()  # the same, and no earlier program can run
    ARGUMENT = enum.auto()  # an object in an argument changed: it counts as another argument
    AROUND = enum.auto()  # as VALUE; a file does not depend on it
    POSSIBLE = enum.auto()  # code names the value, but whether it reads it is not known


class Change(NamedTuple):
    """A guard that does not hold."""

    text: str  # what changed, and the line that reads it
    kind: Kind
    source: str = ""  # of the guard
    parts: tuple[str, str, str] | None = None  # the path, the value before and after, as text
    error: Error | None = None  # for an argument that may not change; None: parts give the text


class Outdated(Exception):
    """A guard does not hold: the program does not run."""

    def __init__(self, change: Change):
        super().__init__(change.text)
        self.change = change


class Guard:
    """One value that a program depends on.

    Args:
        source: the value as messages name it.
        read: fetches it.
        places: dictionaries and keys that lead to it; None: it has to be read in each call.
        containers: gives the dictionaries and lists that ``read`` makes its value of; None: it
            gives a value that is there.
        line: the code that reads it, if it is known.
        kind: what follows from a change.
    """

    def __init__(self, source: str, read: Callable[[], object],
                 places: Sequence[tuple[dict, str]] | None = (),
                 containers: Callable[[], Sequence] | None = None, line: str = "",
                 kind: Kind = Kind.VALUE):
        self.source = source
        self.kind = kind
        self._read, self._line = read, line
        self._places, self._containers = places, containers
        self.accept()

    def accept(self) -> None:
        """Takes the present value as the expected one: it is equal to that."""
        self._expected = Snapshot(self._read())

    def change(self) -> Change | None:
        """How the present value differs from the expected one; None: it does not."""
        found = self._expected.difference(self._read(), self.source)
        if found is None:
            return None
        path, was, now = found
        line = self._line and f", {self._line}"
        return Change(f"{path} changed from {was} to {now}{line}", self.kind, self.source, found)

    @property
    def value(self):
        """The object that was the expected value."""
        return self._expected.value

    @property
    def watched(self) -> tuple[Sequence, Sequence] | None:
        """Places and containers that hold the same objects while the value is unchanged; None:
        no such ones are known."""
        if self._places is None or not self._expected.is_quick:
            return None
        own = self._expected.containers
        return self._places, own if self._containers is None else self._containers()


class HeldAttribute(NamedTuple):
    """An attribute that ``forward`` read."""

    holder: object  # that has it, or that was asked for it
    name: str  # or ``__dict__`` for all that the holder has
    path: str
    line: str = ""  # that reads it, if it is known
    prefix: str = ""  # before the path, in messages

    def guards(self, kind: Kind = Kind.VALUE) -> list[Guard]:
        """The guards of the attribute and, if only the class has it, of the class attribute."""
        table, cls = table_of(self.holder, self.name), type(self.holder)
        source = self.prefix + self.path
        found = [Guard(source, lambda: table.get(self.name, MISSING), [(table, self.name)],
                       line=self.line, kind=kind)]
        if self.name not in table and is_compared(attribute_of(cls, self.name)):
            found.append(Guard(source, lambda: attribute_of(cls, self.name), None,
                               line=self.line, kind=kind))
        return found


class GuardSet:
    """The guards of one program.

    Two checks in C++ show whether any value changed. Only then do the guards compare values, which
    shows what changed and whether the program depends on it.

    Args:
        guards: of the program.
        tensors: its parameters and buffers.
        training: whether ``requires_grad`` and hooks of tensors matter.
        modules: the modules whose classes are guarded.
        looked: called when a value changed and all guards hold.
        places: more dictionaries and keys whose changes call ``looked``.
    """

    def __init__(self, guards: Iterable, tensors: Sequence[torch.Tensor], training: bool,
                 modules: Sequence[torch.nn.Module], looked: Callable[[], None],
                 places: Sequence[tuple[dict, str]] = ()):
        self._guards = list(guards)
        self._tensors = _C.TensorWatch(tensors, training)
        self._modules = modules
        self._looked = looked
        self._more_places = places
        self._watch()

    def _watch(self) -> None:
        places, containers = list(self._more_places), {}
        self._slow = []
        for guard in self._guards:
            watched = guard.watched
            if watched is None:
                self._slow.append(guard)
            else:
                places += watched[0]
                containers.update((id(one), one) for one in watched[1])
        self._items = _C.ItemWatch(list(containers.values()), places, self._modules)

    def check(self) -> bool:
        """Checks all guards.

        Returns:
            Whether a tensor was written on the host, or lies elsewhere, since :meth:`note_written`.

        Raises:
            Outdated: One does not hold.
        """
        changes = self._tensors.look()
        if changes & _CONVERTED or not self._items.is_same():
            self._check_all()
        for guard in self._slow:
            change = guard.change()
            if change is not None:
                raise Outdated(change)
        return bool(changes & _WRITTEN)

    def _check_all(self) -> None:
        for guard in self._guards:
            change = guard.change()
            if change is not None:
                raise Outdated(change)
        for guard in self._guards:
            guard.accept()
        self._tensors.note(_CONVERTED)
        self._looked()
        self._watch()

    def holds(self) -> bool:
        """Whether all guards hold."""
        try:
            self.check()
        except Outdated:
            return False
        return True

    def change_of_module(self) -> Change | None:
        """The first guard that does not hold, without those of what a file does not depend on."""
        changes = (guard.change() for guard in self._guards
                   if guard.kind not in (Kind.AROUND, Kind.POSSIBLE))
        return next(filter(None, changes), None)

    def are_tensors_fit(self) -> bool:
        """Whether the tensors have the types that the program was made for."""
        return not any(guard.change() for guard in self._guards if guard.kind is Kind.TENSOR)

    def note_written(self) -> None:
        """Takes note that the program has all writes to its tensors."""
        self._tensors.note(_WRITTEN)

    def stop_watching(self, source: str) -> None:
        """Gives up the guards of a value."""
        self._guards = [guard for guard in self._guards if guard.source != source]
        self._watch()


def line_of(place: tuple[str, int] | None) -> str:
    """``net.py:31`` for a line of a program; empty if it is not known."""
    return place_text(place and (place[0].rpartition("/")[2], place[1]))


def table_of(holder, name: str) -> dict:
    """Where an attribute of that name stands: the object's dictionary, or for ``__dict__`` one that
    has that."""
    own = object.__getattribute__(holder, "__dict__")
    return {name: own} if name == "__dict__" else own
