"""What ``forward`` reads of globals, and of variables of functions around it.

Nothing of Python reports that one is read, so the names are those in the code of ``forward`` and of
the user's functions that it refers to; some may be those of a branch that did not run.
"""

import dis
import functools
import types
from collections.abc import Iterator
from typing import NamedTuple

import torch

from poptorch._capture.places import is_packaged, is_pythons, is_torchs
from poptorch._capture.reads import fill, holds_fake
from poptorch._snapshot import (
    MISSING,
    Snapshot,
    attribute_of,
    has_attributes,
    is_compared,
    is_foreign,
    objects_within,
)

_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_OUTER = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_LOCAL = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW"})
_STORES = frozenset({"STORE_GLOBAL", "STORE_DEREF", "DELETE_GLOBAL", "DELETE_DEREF"})


class OuterName(NamedTuple):
    """A value that is reached from a global, or from a variable of a function around.

    Attributes:
        root: the dictionary of globals, or the cell of the variable.
        names: the variable, and attributes of modules, classes and objects from there on.
    """

    root: dict | types.CellType
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """The value as the program names it."""
        return ".".join(self.names)

    def value(self):
        """What stands there now."""
        value = _value_in(self.root, self.names[0])
        for name in self.names[1:]:
            value = attribute_of(value, name)
        return value

    def places(self) -> list[tuple[dict, str]] | None:
        """The dictionaries in which the names stand, with the names; None where one stands in a
        class, or in a cell."""
        found, table = [], self.root
        for number, name in enumerate(self.names):
            if not isinstance(table, dict) or name not in table:
                return None
            found.append((table, name))
            if number + 1 < len(self.names):
                table = _table_of(table[name])
        return found


def found(module: torch.nn.Module, arguments) -> list[tuple[OuterName, Snapshot]]:
    """The names outside that ``forward`` may read, with the values that they have; those that the
    code itself sets are left out.

    Args:
        module: the outermost module.
        arguments: of the call, which may hold functions.
    """
    walk = _Walk()
    for part in module.modules():
        walk.of_module(part)
    for _, value in objects_within(arguments, ""):
        walk.of_function(value, None)
    return [(name, Snapshot(value)) for key, (name, value) in walk.found.items()
            if key[:2] not in walk.stored]


def put_back(names: list[tuple[OuterName, Snapshot]]) -> tuple[list, list[str]]:
    """Gives containers what they held, where ``forward`` has put tensors without data into them.

    Returns:
        The other names with their values, and as text those of these containers.
    """
    others, filled = [], []
    for name, snapshot in names:
        held = [(container, parts) for container, parts in snapshot.held if holds_fake(container)]
        for container, parts in held:
            fill(container, parts)
        if held:
            filled.append(name.text)
        else:
            others.append((name, snapshot))
    return others, filled


def unchanged(names: list[tuple[OuterName, Snapshot]]) -> list[OuterName]:
    """Those that have the values that they had."""
    return [name for name, snapshot in names if snapshot.difference(name.value(), "") is None]


class _Walk:
    """Goes through functions and what they refer to, each once."""

    def __init__(self):
        # By identity of the root, and names.
        self.found: dict[tuple, tuple[OuterName, object]] = {}
        self.stored: set[tuple] = set()
        self._seen: set = set()

    def of_module(self, module: torch.nn.Module) -> None:
        self._of_methods(type(module), ("forward", "__call__"))
        for name, value in vars(module).items():
            for _, part in objects_within(value, ""):
                if name not in ("_parameters", "_buffers", "_modules"):
                    self.of_function(part, type(module))

    def of_function(self, function, cls: type | None, owner: OuterName | None = None) -> None:
        """A function, a method or a partial function.

        Args:
            function: or any other value, which is passed over.
            cls: whose methods its first argument has.
            owner: the object that its first argument is, if that is reached from outside.
        """
        if isinstance(function, functools.partial):
            self.of_function(function.func, cls)
        elif isinstance(function, types.MethodType):
            self.of_function(function.__func__, type(function.__self__))
        elif isinstance(function, types.FunctionType) and _is_users(function.__code__.co_filename):
            code = function.__code__
            scope = _Scope(function.__globals__,
                           dict(zip(code.co_freevars, function.__closure__ or ())),
                           code.co_varnames[0] if owner and code.co_argcount else None, owner)
            self._of_code(code, scope, cls)

    def _of_methods(self, cls: type, names) -> None:
        for owner in cls.__mro__:
            for name in names:
                method = vars(owner).get(name)
                if isinstance(method, property):
                    method = method.fget
                self.of_function(getattr(method, "__func__", method), cls)

    def _of_code(self, code, scope: "_Scope", cls: type | None) -> None:
        key = code, cls, scope.owner and scope.owner.names, *map(id, scope.cells.values())
        if key in self._seen:
            return
        self._seen.add(key)
        for name in _reads_of(code, scope, self.stored):
            self._note(name)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._of_code(constant, scope, cls)
        if cls is not None:
            self._of_methods(cls, code.co_names)

    def _note(self, name: OuterName) -> None:
        """Follows names for as long as they lead through modules, classes and objects."""
        value, owner = _value_in(name.root, name.names[0]), None
        for used in range(1, len(name.names) + 1):
            known = OuterName(name.root, name.names[:used])
            if used == len(name.names) or _table_of(value) is None:
                break
            owner = known if has_attributes(value) else None
            value = attribute_of(value, name.names[used])
        if has_attributes(value):
            self.of_function(attribute_of(value, "__call__"), type(value), known)
        elif isinstance(value, _FUNCTIONS):
            self.of_function(value, owner and type(owner.value()), owner)
        elif is_compared(value):
            self.found.setdefault((id(known.root), *known.names), (known, value))


class _Scope(NamedTuple):
    """What names of variables stand for in a function.

    Attributes:
        variables: the globals.
        cells: variables of functions around it.
        first: the name of its first argument, if it is known what that is.
        owner: what it is.
    """

    variables: dict
    cells: dict
    first: str | None
    owner: OuterName | None

    def named(self, kind: str, name: str) -> OuterName | None:
        """What an instruction reads outside of the function; None: nothing."""
        if kind in _GLOBAL and name in self.variables:
            return OuterName(self.variables, (name,))
        if kind in _OUTER and name in self.cells:
            return OuterName(self.cells[name], (name,))
        return self.owner if kind in _LOCAL and name == self.first else None


def _reads_of(code, scope: _Scope, stored: set) -> Iterator[OuterName]:
    """What code reads outside; what it sets is added to ``stored``."""
    name = None
    for instruction in dis.get_instructions(code):
        kind, argument = instruction.opname, instruction.argval
        if kind in _ATTRIBUTE and name is not None:
            name = OuterName(name.root, (*name.names, argument))
            continue
        if name is not None:
            yield name
        name = scope.named(kind, argument)
        if kind in _STORES:
            stored.add((id(scope.cells.get(argument, scope.variables)), argument))
    if name is not None:
        yield name


def _is_users(file: str) -> bool:
    return not (is_torchs(file) or is_pythons(file) or is_packaged(file))


def _value_in(root, name: str):
    if isinstance(root, dict):
        return root.get(name, MISSING)
    try:
        return root.cell_contents
    except ValueError:
        return MISSING


def _table_of(value):
    """The attributes of a module, a class or an object of the user's; None for others."""
    if isinstance(value, type):
        return None if is_foreign(value) else type.__getattribute__(value, "__dict__")
    is_own = isinstance(value, (types.SimpleNamespace, torch.nn.Module)) or has_attributes(value) \
        or isinstance(value, types.ModuleType) and _is_users(getattr(value, "__file__", None) or "")
    return object.__getattribute__(value, "__dict__") if is_own else None
