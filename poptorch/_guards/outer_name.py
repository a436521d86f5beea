"""A name outside of ``forward``, and what stands there."""

import types
from typing import NamedTuple

import torch

from poptorch._base.value_snapshot import MISSING, attribute_of, has_attributes, is_foreign
from poptorch._capture.graph.source_location import is_packaged, is_pythons, is_torchs


class OuterName(NamedTuple):
    """A value that is reached from a global, or from a variable of a function around.

    Attributes:
        root: the dictionary of globals, or the cell of the variable.
        names: the variable, and attributes of modules, classes and objects from there on.
    """

    root: dict | types.CellType
    names: tuple[str, ...]

    @property
    def key(self) -> tuple:
        """What tells it from others for as long as its root lives."""
        return id(self.root), *self.names

    @property
    def text(self) -> str:
        """The value as the program names it."""
        return ".".join(self.names)

    def value(self):
        """What stands there now."""
        value = value_in(self.root, self.names[0])
        for name in self.names[1:]:
            value = attribute_of(value, name)
        return value

    def own_value(self):
        """What stands there now, and not in the class of what the name leads to."""
        if len(self.names) == 1:
            return self.value()
        return (attributes_in(self.holder()) or {}).get(self.names[-1], MISSING)

    def holder(self):
        """What has the attribute that the last name is; None for a variable."""
        return None if len(self.names) == 1 else OuterName(self.root, self.names[:-1]).value()

    def put(self, value) -> None:
        """Lets a value stand there; ``MISSING``: none."""
        table, name = self.root, self.names[-1]
        if len(self.names) > 1:
            holder = self.holder()
            table = holder if isinstance(holder, type) else attributes_in(holder)
        if isinstance(table, types.CellType):
            name = "cell_contents"
        if isinstance(table, dict) and value is MISSING:
            table.pop(name, None)
        elif isinstance(table, dict):
            table[name] = value
        elif table is not None and value is MISSING:
            delattr(table, name)
        elif table is not None:
            setattr(table, name, value)

    def places(self) -> list[tuple[dict, str]] | None:
        """The dictionaries in which the names stand, with the names; None where one stands in a
        class, or in a cell."""
        found, table = [], self.root
        for number, name in enumerate(self.names):
            if not isinstance(table, dict) or name not in table:
                return None
            found.append((table, name))
            if number + 1 < len(self.names):
                table = attributes_in(table[name])
        return found


def is_users(file: str) -> bool:
    """Whether a file is of the user's program."""
    return not (is_torchs(file) or is_pythons(file) or is_packaged(file))


def value_in(root, name: str):
    """What stands in globals or in a cell; ``MISSING`` if nothing does."""
    if isinstance(root, dict):
        return root.get(name, MISSING)
    try:
        return root.cell_contents
    except ValueError:
        return MISSING


def attributes_in(value):
    """The attributes of a module, a class or an object of the user's; None for others."""
    if isinstance(value, type):
        return None if is_foreign(value) else type.__getattribute__(value, "__dict__")
    is_own = isinstance(value, (types.SimpleNamespace, torch.nn.Module)) or has_attributes(value) \
        or isinstance(value, types.ModuleType) and is_users(getattr(value, "__file__", None) or "")
    return object.__getattribute__(value, "__dict__") if is_own else None
