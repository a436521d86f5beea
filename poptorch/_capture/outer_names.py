"""What ``forward`` reads of globals, and of variables of functions around it.

Nothing of Python reports that one is read, so the names are those in the code of ``forward``, of
hooks, and of the user's functions and classes that these refer to; some may be those of a branch
that did not run.
"""

import dis
import functools
import types
from collections.abc import Iterator
from typing import NamedTuple

import torch

from poptorch._capture.clones import HOOKS
from poptorch._capture.draws import Draws
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
# Methods that are called without that code names them: those of objects, modules, and functions
# with a gradient of their own.
_CALLED = frozenset({"__init__", "__call__", "forward", "backward", "setup_context"})
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

    def own_value(self):
        """What stands there now, and not in the class of what the name leads to."""
        if len(self.names) == 1:
            return self.value()
        return (_table_of(self._holder()) or {}).get(self.names[-1], MISSING)

    def _holder(self):
        return OuterName(self.root, self.names[:-1]).value()

    def put(self, value) -> None:
        """Lets a value stand there; ``MISSING``: none."""
        table, name = self.root, self.names[-1]
        if len(self.names) > 1:
            holder = self._holder()
            table = holder if isinstance(holder, type) else _table_of(holder)
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
                table = _table_of(table[name])
        return found


def read_and_set(module: torch.nn.Module, arguments,
                 draws: Draws | None = None) -> tuple[list, list]:
    """The names outside that ``forward`` may read, and those that it may set, with the values that
    they have.

    Args:
        module: the outermost module.
        arguments: of the call, which may hold functions.
        draws: is told of all that names lead to.

    Returns:
        Two lists of pairs of an :class:`OuterName` and a :class:`Snapshot`: what is read, without
        the variables that the code itself sets, and what is set.
    """
    walk = _Walk(draws or Draws())
    for path, part in module.named_modules():
        walk.of_module(part, path)
    walk.of_values(arguments, None, "arguments")
    walk.of_classes()
    walk.of_held()
    read = [(name, Snapshot(value)) for key, (name, value) in walk.found.items()
            if key[:2] not in walk.stored]
    return read, [(name, Snapshot(name.own_value())) for name in walk.sets.values()]


def put_back(names: list[tuple[OuterName, Snapshot]]) -> tuple[list, list[str]]:
    """Gives names and containers what they had, where ``forward`` has put tensors without data.

    Returns:
        The other names with their values, and as text those that were given something.
    """
    others, filled = [], []
    for name, snapshot in names:
        held = [(container, parts) for container, parts in snapshot.held if holds_fake(container)]
        for container, parts in held:
            fill(container, parts)
        value = name.value()
        is_replaced = value is not snapshot.value and holds_fake(value)
        if is_replaced:
            name.put(snapshot.value)
        if held or is_replaced:
            filled.append(name.text)
        else:
            others.append((name, snapshot))
    return others, filled


def unchanged(names: list[tuple[OuterName, Snapshot]]) -> list[OuterName]:
    """Those that have the values that they had."""
    return [name for name, snapshot in names if snapshot.difference(name.value(), "") is None]


class _Walk:
    """Goes through functions and what they refer to, each once."""

    def __init__(self, draws: Draws):
        self._draws = draws
        # By identity of the root, and names.
        self.found: dict[tuple, tuple[OuterName, object]] = {}
        self.stored: set[tuple] = set()
        self.sets: dict[tuple, OuterName] = {}
        self._seen: set = set()
        # Of what objects are that code may have, and the names of attributes in all code.
        self._classes: dict[type, None] = {}
        self._attributes: set[str] = set(_CALLED)
        self._roots: list[dict] = []  # which are known by their identity
        # Classes and files of code that are held as values, by identity, with a path.
        self._held: dict[int, tuple[str, object]] = {}

    def of_module(self, module: torch.nn.Module, path: str) -> None:
        """A module: its methods, hooks, and what it holds.

        Args:
            module: the module.
            path: of it.
        """
        self._of_methods(type(module), ("forward", "__call__"))
        for name, value in vars(module).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                self.of_values(value, type(module), f"{path}.{name}".lstrip("."))
        for kind in HOOKS:
            self._of_hooks(getattr(module, kind), path or "the module")
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and tensor.requires_grad:
                self._of_hooks(tensor._backward_hooks, f"{path}.{name}".lstrip("."))

    def _of_hooks(self, hooks: dict | None, path: str) -> None:
        for hook in (hooks or {}).values():
            names = (f"the hook of {path}",)
            if isinstance(hook, types.MethodType) and has_attributes(hook.__self__):
                hook, names = hook.__self__, (*names, hook.__name__)
            self._roots.append({names[0]: hook})
            self._note(OuterName(self._roots[-1], names))

    def of_values(self, value, cls: type | None, path: str = "") -> None:
        """Functions, objects and classes in containers.

        Args:
            value: a container, to any depth, or any other value.
            cls: as :meth:`of_function` takes it.
            path: of the value, where no name leads to it.
        """
        for where, part in objects_within(value, path):
            self.of_function(part, cls)
            self._of_class(part if isinstance(part, type) else type(part))
            if path and isinstance(part, (type, types.ModuleType)):
                self._held.setdefault(id(part), (where, part))

    def of_held(self) -> None:
        """What code may read of classes and files that are held as values, as it names it."""
        for where, part in self._held.values():
            if _table_of(part) is not None:
                self._roots.append({where: part})
                for name in sorted(self._attributes):
                    value = attribute_of(part, name)
                    if is_compared(value):
                        known = OuterName(self._roots[-1], (where, name))
                        self.found.setdefault((id(known.root), *known.names), (known, value))

    def _of_class(self, cls: type) -> None:
        if not is_foreign(cls):
            self._classes[cls] = None

    def of_classes(self) -> None:
        """The methods of all classes, as far as code names them: which object it calls them of is
        not known before it runs. So other code's reads of what they set still count."""
        done, read, stored, self.stored = None, set(self.found), self.stored, set()
        while done != (len(self._classes), len(self._attributes)):
            done = len(self._classes), len(self._attributes)
            for cls in list(self._classes):
                self._of_methods(cls, frozenset(self._attributes))
        for key in self.found.keys() - read:
            if key[:2] in self.stored:
                del self.found[key]
        self.stored = stored

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
            for name, value in () if is_foreign(owner) else list(vars(owner).items()):
                if name in names:
                    self.of_function(_function_of(value), cls)

    def _of_code(self, code, scope: "_Scope", cls: type | None) -> None:
        owner = scope.owner and (id(scope.owner.root), scope.owner.names)
        key = code, cls, owner, *map(id, scope.cells.values())
        if key in self._seen:
            return
        self._seen.add(key)
        self._attributes.update(code.co_names)
        for name, is_set in _names_of(code, scope, self.stored):
            if is_set:
                self.sets.setdefault((id(name.root), *name.names), name)
            else:
                self._note(name)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._of_code(constant, scope, cls)
        if cls is not None:
            self._of_methods(cls, code.co_names)

    def _note(self, name: OuterName) -> None:
        """Follows names for as long as they lead through modules, classes and objects."""
        value, owner, cls = _value_in(name.root, name.names[0]), None, None
        for used in range(1, len(name.names) + 1):
            known = OuterName(name.root, name.names[:used])
            if used == len(name.names) or _table_of(value) is None:
                break
            owner = known if has_attributes(value) else None
            cls = value if isinstance(value, type) else type(value)
            value = attribute_of(value, name.names[used])
        if isinstance(value, classmethod):  # it may make an object
            self._of_class(cls)
        value = _function_of(value)
        for path, part in objects_within(value, known.text):
            self._draws.meet(part, path)
        if has_attributes(value):
            self.of_function(attribute_of(value, "__call__"), type(value), known)
        elif isinstance(value, _FUNCTIONS):
            self.of_function(value, cls, owner)
        elif is_compared(value):
            self.found.setdefault((id(known.root), *known.names), (known, value))
            self.of_values(value, None)
        elif isinstance(value, type):
            self._of_class(value)


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


def _names_of(code, scope: _Scope, stored: set) -> Iterator[tuple[OuterName, bool]]:
    """What code reads outside, and what it sets there (True); variables that it sets are added to
    ``stored``."""
    name = None
    for instruction in dis.get_instructions(code):
        kind, argument = instruction.opname, instruction.argval
        if kind in _ATTRIBUTE and name is not None:
            name = OuterName(name.root, (*name.names, argument))
            continue
        if name is not None:
            yield name, False
            if kind == "STORE_ATTR":
                yield OuterName(name.root, (*name.names, argument)), True
        name = scope.named(kind, argument)
        if kind in _STORES:
            root = scope.cells.get(argument, scope.variables)
            stored.add((id(root), argument))
            if kind == "STORE_GLOBAL" or argument in scope.cells:
                yield OuterName(root, (argument,)), True
    if name is not None:
        yield name, False


def _function_of(value):
    """The function of a property or a method that needs no object; another value as it is."""
    if isinstance(value, property):
        return value.fget
    if isinstance(value, functools.cached_property):
        return value.func
    return value.__func__ if isinstance(value, (staticmethod, classmethod)) else value


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
