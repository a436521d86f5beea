"""Warns where a value that ``forward`` reads from outside of the module is another one."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import torch

from poptorch import _C
from poptorch._base.logging import logger
from poptorch._base.value_snapshot import Snapshot, attribute_of
from poptorch._guards import globals_read, outer_counts
from poptorch._guards.attribute_reads import table_of, warn_of_kept
from poptorch._guards.host_randomness import Draws
from poptorch._guards.outer_name import OuterName


class HeldName(NamedTuple):
    """An attribute of an object that a name outside leads to.

    Attributes:
        holder: the object.
        name: the attribute.
        text: the value as the program names it.
    """

    holder: object
    name: str
    text: str

    def value(self):
        """What stands there now."""
        own = table_of(self.holder, self.name)
        return own[self.name] if self.name in own else attribute_of(self.holder, self.name)

    def places(self) -> list[tuple[dict, str]] | None:
        """The dictionary in which it stands; None: a class has it."""
        table = table_of(self.holder, self.name)
        return [(table, self.name)] if self.name in table else None


class Variable(NamedTuple):
    """A variable of the environment."""

    name: str

    @property
    def text(self) -> str:
        """The value as the program names it."""
        return f"os.environ[{self.name!r}]"

    def value(self) -> str | None:
        """What it is now; None: it is not set."""
        return os.environ.get(self.name)

    def places(self) -> None:
        """There is no dictionary in which it stands."""


class OuterNames:
    """A context around a capture: the names outside of the module that ``forward`` may read.

    Args:
        module: the module.
        arguments: of the call, which may hold functions.

    Attributes:
        objects: that the names lead to.
        draws: the random generators and iterators among them.
    """

    def __init__(self, module: torch.nn.Module, arguments: list):
        self.draws = Draws()
        self._read, self._set, self._lines, self.objects = globals_read.read_and_set(
            module, arguments, self.draws)

    def __enter__(self) -> "OuterNames":
        return self

    def __exit__(self, kind, *_) -> None:
        read, kept = globals_read.put_back(self._read)
        set_, kept_there = globals_read.put_back(self._set)
        if kind is None:
            warn_of_kept(kept + kept_there)
            outer_counts.warn(read, set_, self._lines)
            self._unchanged = globals_read.unchanged(read)

    def values(self) -> list:
        """The values of those that ``forward`` has not changed."""
        return [name.value() for name in self._unchanged]

    def watch(self, captured) -> "OuterWatch":
        """Looks at those from now on, and at what ``captured`` has found beside them."""
        known = {name.text for name in self._unchanged}
        held = [HeldName(*one) for one in captured.outer_attributes if one[2] not in known]
        return OuterWatch([*self._unchanged, *held, *map(Variable, captured.environment)])


class OuterWatch:
    """Values as they were when a program was compiled, looked at in each call.

    It only warns, once for each name: that ``forward`` has read the value is not certain.

    Args:
        names: that ``forward`` may read.
    """

    def __init__(self, names: Sequence[OuterName | HeldName | Variable] = ()):
        watched = [(name, Snapshot(name.value()), name.places()) for name in names]
        self._quick = [(name, snapshot) for name, snapshot, places in watched
                       if places is not None and snapshot.is_quick]
        self._slow = [(name, snapshot) for name, snapshot, places in watched
                      if places is None or not snapshot.is_quick]
        containers = {id(one): one for _, snapshot in self._quick for one in snapshot.containers}
        self._items = _C.ItemWatch(
            list(containers.values()),
            [place for _, snapshot, places in watched if snapshot.is_quick
             for place in places or ()], [])

    def check(self) -> None:
        """Looks at all of them."""
        if self._quick and not self._items.is_same():
            self._quick = list(filter(_is_as_it_was, self._quick))
            self._items.note()
        if self._slow:
            self._slow = list(filter(_is_as_it_was, self._slow))


def _is_as_it_was(one: tuple[OuterName, Snapshot]) -> bool:
    name, snapshot = one
    found = snapshot.difference(name.value(), name.text)
    if found is not None:
        logger.warning(
            "[call] %s: it was %s when the module was compiled, it is %s. Where forward reads it, "
            "the program goes on with the value that was compiled in. Pass what changes as an "
            "argument; or call destroy(), and the next call compiles the module as it is.", *found)
    return found is None
