"""The guards of what ``forward`` reads outside of the module: globals, closures, the environment.
"""

import os
from functools import partial

import torch

from poptorch._base.value_snapshot import Snapshot, has_attributes
from poptorch._guards import globals_read
from poptorch._guards.attribute_reads import warn_of_kept
from poptorch._guards.guard import Guard, Kind, line_of
from poptorch._guards.host_randomness import Draws
from poptorch._guards.outer_name import OuterName
from poptorch._guards.python_state import (
    is_counting,
    is_flag,
    is_number,
    warn_of_python_state,
)
from poptorch._guards.statements import Statement
from poptorch.errors import place_text


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
            self._warn_of_changes(read, set_)
            self._unchanged = globals_read.unchanged(read)

    def values(self) -> list:
        """The values of those that ``forward`` has not changed."""
        return [name.value() for name in self._unchanged]

    def guards(self, captured) -> list[Guard]:
        """The guards of those, and of what ``captured`` has found beside them."""
        known = {name.text for name in self._unchanged}
        found = [Guard(name.text, name.value, name.places(), line=self._line(name),
                       kind=Kind.POSSIBLE) for name in self._unchanged]
        for held in captured.outer_attributes:
            found += held.guards() if held.path not in known else ()
        return found + [Guard(f"os.environ[{name!r}]", partial(os.environ.get, name), None)
                        for name in captured.environment]

    def _line(self, name: OuterName) -> str:
        reads, _ = self._lines.get(name.key, ((), ()))
        return line_of(min(((code.co_filename, line) for code, line, _ in reads), default=None))

    def _warn_of_changes(self, read: list[tuple[OuterName, Snapshot]],
                         sets: list[tuple[OuterName, Snapshot]]) -> None:
        """Warns of values that ``forward`` has changed and computes with."""
        for name, snapshot in sets:
            if has_attributes(name.holder()):  # what is set of it was noted as it happened
                continue
            was, now = snapshot.value, name.own_value()
            reads, puts = self._lines[name.key]
            if is_number(was) and is_number(now) and was != now:
                counted = {put for put in puts if is_counting(put, reads, name.names[-1])}
                if counted and reads - counted:
                    warn_of_python_state(name.text, was, now, _first(counted))
            elif is_flag(was) and type(now) is type(was) and now != was:
                found = {put for put in puts if any(
                    code is put[0] and tuple(place) < put[1:] for code, *place in reads)}
                if found:
                    warn_of_python_state(name.text, repr(was), repr(now), _first(found))
        for name, snapshot in read:
            if name.value() is snapshot.value:
                found = snapshot.change(name.text)
                reads, _ = self._lines.get(name.key, ((), ()))
                if found is not None and (found.is_gone or len(reads) != 1):
                    warn_of_python_state(*found[:3])


def _first(found: set[Statement]) -> str:
    code, line, _ = min(found, key=lambda statement: statement[1:])
    return place_text((code.co_filename, line))
