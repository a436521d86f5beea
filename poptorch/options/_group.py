"""What the groups of options share: rows with defaults and checks, freezing, copies, printing."""

import contextlib
import copy
import enum
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch

from poptorch._annotations.strategy_rows import _IExecutionStrategy
from poptorch._base.checks import near_texts, public_names
from poptorch._base.logging import logger
from poptorch._base.unimplemented import LATER
from poptorch.options._row import Row, finish, shown


class OptionGroup:
    """Values of a table of rows; unfrozen until a model or a loader uses them.

    ``_PREFIX`` stands before a setter's name in error messages; ``_NO_SETTERS`` are public methods
    that change nothing.
    """

    _ROWS: ClassVar[tuple[Row, ...]] = ()
    _PREFIX: ClassVar[str] = ""
    _NO_SETTERS: ClassVar[frozenset[str]] = frozenset({"checkIsFrozen", "clone", "fromDict",
                                                       "toDict"})

    def __init_subclass__(cls, part_of: str = "", **arguments: Any) -> None:
        """Makes the setters of the class, which may be a part of a public one, from their rows."""
        super().__init_subclass__(**arguments)
        own = finish(cls, part_of)
        rows = [row for base in cls.__bases__ for row in getattr(base, "_ROWS", ())]
        cls._ROWS = tuple(dict.fromkeys((*rows, *own)))

    def __init__(self, **default_values: Any):
        self._values = {row.name: copy.deepcopy(row.default) for row in self._ROWS}
        self._is_frozen = False
        self._chosen: set[str] = set()  # the options that were set, to their default too
        for name, value in default_values.items():
            if name not in self._values:
                raise TypeError(self._unknown(name))
            self._set(name, value)

    # -- reading -------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values")
        if values is None or name.startswith("__"):
            raise AttributeError(name)
        known = self._value_name(name)
        if known is None:
            raise AttributeError(self._unknown(name))
        return values[known]

    def _value_name(self, name: str) -> str | None:
        """The option that a name reads: its own, or that of its setter without ``set``."""
        if name in self._values:
            return name
        setter = f"set{name[:1].upper()}{name[1:]}"
        return next((row.name for row in self._ROWS if row.setter == setter), None)

    def __dir__(self) -> list[str]:
        return public_names([*super().__dir__(), *self.__dict__.get("_values", ())])

    def _unknown(self, name: str) -> str:
        setters = self._setters()
        near = near_texts(name, self._names())
        return (f"{self._name()} has no option {name!r}."
                + (near or f" Methods: {', '.join(setters)}. Read values by their snake_case "
                           f"names."))

    def _names(self) -> dict[str, str]:
        """What may be read or called, and how it is written."""
        return {name: name for name in (*self._values, *self._setters())}

    @classmethod
    def _setters(cls) -> list[str]:
        names = {name for part in cls.__mro__ for name in part.__dict__
                 if callable(part.__dict__[name]) and not name.startswith("_")}
        return sorted(names)

    @classmethod
    def _name(cls) -> str:
        return cls.__name__.removeprefix("_")

    @classmethod
    def _row(cls, name: str) -> Row:
        """The row of an option; a KeyError if the group does not have it."""
        return {row.name: row for row in cls._ROWS}[name]

    def toDict(self) -> dict[str, Any]:
        """The options by their snake_case name, as values that JSON supports.

        Enum members are given by their value, dtypes by their name.

        Example:
            >>> import poptorch
            >>> poptorch.Options().TensorLocations.numIOTiles(32).toDict()["num_io_tiles"]
            32
        """
        return {name: plain(value) for name, value in self._values.items()}

    def _load(self, name: str, value: Any) -> None:
        """Takes a value as :meth:`toDict` gave it."""
        row = self._row(name)
        default = plain(row.default)
        if value is row.default or (type(value) is type(default) and value == default):
            self.checkIsFrozen(row.setter)
            self._values[name] = copy.deepcopy(row.default)
            return
        if row.check is not None:
            # Where `load` does not accept the value, the check refuses it with a message for users.
            with contextlib.suppress(TypeError, ValueError, AttributeError, LookupError):
                value = row.check.load(value)
        self._set(name, value)

    def _check_together(self) -> None:
        """Checks values that came one by one, where setters take several at once."""

    # -- writing -------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        is_own = type(self).__module__.startswith("poptorch.")
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        known = self._value_name(name) if "_values" in self.__dict__ else None
        if known is not None:
            self._assign(self._row(known), value)
        elif name in self._setters():
            raise AttributeError(f"{self._name()}.{name} cannot be assigned. Options are set by "
                                 f"calling their method: {name}({value!r}).")
        elif is_own:
            raise AttributeError(self._unknown(name))
        else:
            object.__setattr__(self, name, value)

    def _assign(self, row: Row, value: Any) -> None:
        setter = getattr(self, row.setter or row.name)
        if row.setter and len(inspect.signature(setter).parameters) == 1:
            setter(value)  # which may do more than to keep the value
        elif row.check is None or not row.setter:
            raise AttributeError(f"{self._name()}.{row.name} cannot be assigned"
                                 f"{f'. Call {row.setter}()' * bool(row.setter)}.")
        else:
            self._set(row.name, value)

    def checkIsFrozen(self, option: str | None = None) -> None:
        """Raises when the options are in use and must not change any more.

        Args:
            option: the option that is about to change, for the message; None: any.

        Raises:
            AttributeError: A model or a loader was built with these options.

        Example:
            >>> import poptorch
            >>> poptorch.Options().checkIsFrozen("deviceIterations")
        """
        if self._is_frozen:
            what = "" if option is None else f" ({option})"
            raise AttributeError(f"Can't modify frozen Options{what}: a model or a DataLoader "
                                 f"already uses them. Make the change before that, or on "
                                 f"options.clone().")

    def _set(self, name: str, value: Any) -> Self:
        row = self._row(name)
        self.checkIsFrozen(row.setter or None)
        if row.check is not None:
            value = row.check(value, self._PREFIX + (row.setter or row.name))
        self._values[name] = value
        self._chosen.add(name)
        if row.later and value != row.default:
            say_later(self._PREFIX + row.setter, row.later)
        return self

    def _setter(self, name: str) -> Callable[..., Self]:
        """The setter that a text names; an AttributeError for other methods."""
        if name not in self._setters():
            raise AttributeError(self._unknown(name))
        if name in self._NO_SETTERS:
            raise AttributeError(f"{self._name()}.{name}() changes no option. Take it out, and "
                                 f"name only methods that set one.")
        return getattr(self, name)

    def _freeze(self) -> None:
        self._is_frozen = True

    def __deepcopy__(self, memo):
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new.__dict__.update(copy.deepcopy(self.__dict__, memo))
        new.__dict__["_is_frozen"] = False
        return new

    def __copy__(self):
        return copy.deepcopy(self)

    # -- comparing and printing ----------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values == other._values

    __hash__ = None

    def _changed(self) -> list[str]:
        return [f"{row.name}={shown(self._values[row.name])}" for row in self._ROWS
                if self._values[row.name] != row.default]

    def __repr__(self) -> str:
        return f"{self._name()}({', '.join(self._changed())})"


_said: set[str] = set()


def say_once(what: str, words: str) -> None:
    """Logs a warning, once for each ``what``."""
    if what not in _said:
        _said.add(what)
        logger.warning(words)


def say_later(option: str, work: str) -> None:
    """Warns, once for each option, that it has no effect before ``work``, a key of ``LATER``."""
    say_once(option, f"[{option}] has no effect yet: it requires {LATER[work]} (not implemented). "
                     f"See docs/reference/options_without_effect.md.")


def plain(value):
    """A value for JSON: enum members by value, dtypes by name, tuples and sets as lists."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, _IExecutionStrategy):
        return value._plain()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        value = sorted(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
