"""The guards of what ``forward`` reads outside of the module: globals, closures, the environment.
"""

import os
from functools import partial

import torch

from poptorch._guards import globals_read
from poptorch._guards.attribute_reads import holds_fake, refill, warn_of_kept
from poptorch._guards.guard import Guard, Kind, line_of
from poptorch._guards.host_randomness import Draws
from poptorch._guards.outer_name import OuterName
from poptorch._guards.python_state import (
    is_another_flag,
    is_another_number,
    place_of,
    warn_of_python_state,
)


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
        self._names, self.objects = globals_read.names_outside(module, arguments, self.draws)

    def __enter__(self) -> "OuterNames":
        return self

    def __exit__(self, kind, *_) -> None:
        kept = [name for name in self._names if _put_back(name)]
        if kind is None:
            for text in dict.fromkeys(name.text for name in kept):
                warn_of_kept(text)
            others = [name for name in self._names if name not in kept]
            for name in others:
                _warn_of_change(name)
            self._unchanged = globals_read.unchanged(others)

    def values(self) -> list:
        """The values of those that ``forward`` has not changed."""
        return [name.value() for name in self._unchanged]

    def guards(self, captured) -> list[Guard]:
        """The guards of those, and of what ``captured`` has found beside them."""
        found = [Guard(name.text, name.value, name.places(), line=line_of(name.line()),
                       kind=Kind.POSSIBLE) for name in self._unchanged]
        for held in captured.outer_attributes:
            found += held.guards()
        return found + [Guard(f"os.environ[{name!r}]", partial(os.environ.get, name), None)
                        for name in captured.environment]


def _put_back(name: OuterName) -> bool:
    """Gives a name and its containers what they had, where ``forward`` has put tensors without
    data; whether it has."""
    is_kept = name.before is not None and refill(name.before)
    for before, now in ((name.own, name.own_value), (name.before, name.value)):
        if before is not None and now() is not before.value and holds_fake(now()):
            name.put(before.value)
            is_kept = True
    return is_kept


def _warn_of_change(name: OuterName) -> None:
    """Warns of a value that ``forward`` has changed and computes with."""
    was, now = name.own and name.own.value, name.own_value()
    counting, after = name.counting(name.names[-1]), name.set_after_read()
    if counting and is_another_number(was, now):
        warn_of_python_state(name.text, was, now, place_of(counting))
    elif after and is_another_flag(was, now):
        warn_of_python_state(name.text, repr(was), repr(now), place_of(after))
    elif name.before is not None and name.value() is name.before.value:
        found = name.before.change(name.text)
        if found is not None and (found.is_gone or len(name.readers()) != 1):
            warn_of_python_state(*found[:3])
