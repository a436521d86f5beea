"""What the groups of options share: rows with defaults, checks, freezing, printing."""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Row:
    """One option: its name, its default, and what it means.

    Attributes:
        name: snake_case name, also the attribute to read it.
        default: value when nobody set it.
        doc: one line.
    """

    name: str
    default: Any
    doc: str


class OptionGroup:
    """Values of a table of rows; unfrozen until a model or a loader uses them."""

    ROWS: ClassVar[tuple[Row, ...]] = ()

    def __init__(self):
        self._values = {row.name: copy.deepcopy(row.default) for row in self.ROWS}
        self._is_frozen = False

    def __getattr__(self, name: str):
        values = self.__dict__.get("_values")
        if values is not None and name in values:
            return values[name]
        raise AttributeError(f"{type(self).__name__} has no option {name!r}. "
                             f"Options to read: {', '.join(sorted(values or ()))}.")

    def __setattr__(self, name: str, value):
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        raise AttributeError(f"{type(self).__name__}.{name} cannot be assigned. "
                             f"Options are set by calling their method.")

    def __eq__(self, other) -> bool:
        return type(self) is type(other) and self._values == other._values

    __hash__ = None

    def __repr__(self) -> str:
        changed = [f"{row.name}={_shown(self._values[row.name])}" for row in self.ROWS
                   if self._values[row.name] != row.default]
        return f"{type(self).__name__.removeprefix('_')}({', '.join(changed)})"

    def checkIsFrozen(self) -> None:
        """Raises when the options are in use and must not change any more.

        Raises:
            AttributeError: A model or a loader was built with these options.
        """
        if self._is_frozen:
            raise AttributeError("Can't modify frozen Options: a model or a DataLoader already "
                                 "uses them. Make the change before that, or on options.clone().")

    def _set(self, name: str, value):
        self.checkIsFrozen()
        self._values[name] = value
        return self

    def _freeze(self) -> None:
        self._is_frozen = True


def _shown(value) -> str:
    return value.name if hasattr(value, "name") else repr(value)


def at_least(minimum: int, value, option: str) -> int:
    """Returns ``value`` when it is an int of at least ``minimum``; raises otherwise.

    Raises:
        TypeError: ``value`` is not an int.
        ValueError: ``value`` is smaller than ``minimum``.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"[{option}] expected an int of at least {minimum}, "
                        f"got {type(value).__name__} {value!r}.")
    if value < minimum:
        raise ValueError(f"[{option}] expected an int of at least {minimum}, got {value}.")
    return value


def one_of(kind, value, option: str):
    """Returns ``value`` when it is a member of the enum ``kind``; raises otherwise.

    Raises:
        TypeError: ``value`` is not a member; the message lists the members.
    """
    if not isinstance(value, kind):
        raise TypeError(f"[{option}] expected one of "
                        f"{', '.join(f'{kind.__name__}.{m.name}' for m in kind)}, got {value!r}.")
    return value


def a_bool(value, option: str) -> bool:
    """Returns ``value`` when it is a bool; raises a TypeError otherwise."""
    if not isinstance(value, bool):
        raise TypeError(f"[{option}] expected True or False, "
                        f"got {type(value).__name__} {value!r}.")
    return value
