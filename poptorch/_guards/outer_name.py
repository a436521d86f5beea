"""A name outside of ``forward``, and what stands there."""

import sys
import types

from poptorch._base.value_snapshot import MISSING, Snapshot, attribute_of, is_foreign
from poptorch._guards.guard import Guard, Kind, line_of
from poptorch._guards.put_back import holds_fake, refill
from poptorch._guards.python_state import Observed, place_of
from poptorch._guards.statements import is_users


class OuterName(Observed):
    """A value that is reached from a global, or from a variable of a function around.

    Attributes of objects are no such names: which are read is noted while ``forward`` runs.

    Args:
        root: the dictionary of globals, or the cell of the variable.
        names: the variable, and attributes of Python modules, classes and namespaces from there.

    Attributes:
        own: what stood there itself, and not in a base class, if code may set it.
    """

    def __init__(self, root: dict | types.CellType, names: tuple[str, ...]):
        super().__init__(".".join(names), names[-1])
        self.root, self.names = root, names
        self.own: Snapshot | None = None

    def begin(self, is_read: bool) -> None:
        """Takes note of the value that it has before ``forward`` runs."""
        if is_read:
            self.before = Snapshot(self.value())
        if self.sets:
            self.own = Snapshot(self.own_value())
            self.first = self.own.value if self.first_set() is not None else MISSING

    def place(self) -> str:
        """The line that sets it."""
        found = self.first_set()
        return place_of(found) if found is not None else ""

    def put_back(self) -> bool:
        """Gives it and its containers what they had, where ``forward`` has put tensors without
        data; whether it has."""
        is_kept = self.before is not None and refill(self.before)
        for before, now in ((self.own, self.own_value()), (self.before, self.value())):
            if before is not None and now is not before.value and holds_fake(now):
                self._put(before.value)
                is_kept = True
        return is_kept

    def guard(self) -> Guard:
        """That it has the value that it had: it may be one that code only names."""
        return Guard(self.path, self.value, self.places(), line=line_of(self.line()),
                     kind=Kind.POSSIBLE)

    def value(self):
        """What stands there now."""
        value = value_in(self.root, self.names[0])
        for name in self.names[1:]:
            value = attribute_of(value, name)
        return value

    def own_value(self):
        """What stands there itself now."""
        if len(self.names) == 1:
            return self.value()
        return (attributes_in(self.holder()) or {}).get(self.names[-1], MISSING)

    def holder(self):
        """What has the attribute that the last name is; None for a variable."""
        return None if len(self.names) == 1 else OuterName(self.root, self.names[:-1]).value()

    def _put(self, value) -> None:
        table, name = self.holder() or self.root, self.names[-1]
        if isinstance(table, types.CellType):
            name = "cell_contents"
        if not isinstance(table, dict):
            delattr(table, name) if value is MISSING else setattr(table, name, value)
        elif value is MISSING:
            table.pop(name, None)
        else:
            table[name] = value

    def places(self) -> list[tuple[dict, str]] | None:
        """The dictionaries in which the names stand, with the names; None where one stands in a
        class, or in a cell."""
        found, table = [], self.root
        for name in self.names:
            if not isinstance(table, dict) or name not in table:
                return None
            found.append((table, name))
            table = attributes_in(table[name])
        return found


def value_in(root, name: str):
    """What stands in globals or in a cell; ``MISSING`` if nothing does."""
    if isinstance(root, dict):
        return root.get(name, MISSING)
    try:
        return root.cell_contents
    except ValueError:
        return MISSING


def attributes_in(value):
    """The attributes of a Python module, a class or a namespace of the user's; None for others."""
    if isinstance(value, type):
        return None if is_foreign(value) else type.__getattribute__(value, "__dict__")
    is_own = isinstance(value, types.SimpleNamespace) \
        or isinstance(value, types.ModuleType) and value.__name__ not in sys.builtin_module_names \
        and is_users(getattr(value, "__file__", None) or "")
    return object.__getattribute__(value, "__dict__") if is_own else None
