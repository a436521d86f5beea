"""What ``forward`` reads of globals, and of variables of functions around it.

Nothing of Python reports that one is read, so the names are those in the code of ``forward``, of
hooks, and of the user's functions and classes that these refer to; some may be those of a branch
that did not run.
"""

import dis
import functools
import sys
import types
from collections.abc import Iterator
from typing import NamedTuple

import torch

from poptorch._base.value_snapshot import (
    MISSING,
    VALUES,
    Snapshot,
    attribute_of,
    has_attributes,
    is_compared,
    is_foreign,
    objects_within,
)
from poptorch._capture.graph.module_clones import HOOKS
from poptorch._guards.attribute_reads import fill, holds_fake
from poptorch._guards.host_randomness import Draws
from poptorch._guards.import_bindings import Imports
from poptorch._guards.outer_name import (
    OuterName,
    attributes_in,
    is_users,
    value_in,
)
from poptorch._guards.statements import Place, Statement, places

_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial,
              functools._lru_cache_wrapper)
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_OUTER = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_LOCAL = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW"})
# Methods that are called without that code names them: those of objects, modules, and functions
# with a gradient of their own.
_CALLED = frozenset({"__init__", "__call__", "forward", "backward", "setup_context"})
_STORES = frozenset({"STORE_GLOBAL", "STORE_DEREF", "DELETE_GLOBAL", "DELETE_DEREF"})


class Found(NamedTuple):
    """Names outside of ``forward``, with snapshots of the values that they have.

    Attributes:
        read: what may be read, without the variables that the code itself sets.
        sets: what may be set.
        statements: that read each and that set each, by its key.
        objects: which names lead to, with the names.
    """

    read: list[tuple[OuterName, Snapshot]]
    sets: list[tuple[OuterName, Snapshot]]
    statements: dict[tuple, tuple[set[Statement], set[Statement]]]
    objects: list[tuple[object, str]]


def read_and_set(module: torch.nn.Module, arguments, draws: Draws | None = None) -> Found:
    """The names outside that ``forward`` may read, and those that it may set, with the values that
    they have.

    Args:
        module: the outermost module.
        arguments: of the call, which may hold functions.
        draws: is told of all that names lead to.
    """
    walk = _Walk(draws or Draws())
    for path, part in module.named_modules():
        walk.of_module(part, path)
    walk.of_values(arguments, None, "arguments")
    walk.of_classes()
    walk.of_held()
    read = [(name, Snapshot(value)) for key, (name, value) in walk.found.items()
            if key[:2] not in walk.stored]
    sets = [(name, Snapshot(name.own_value())) for name in walk.sets.values()]
    return Found(read, sets, walk.statements, list(walk.objects.values()))


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
        self.statements: dict[tuple, tuple[set[Statement], set[Statement]]] = {}
        self.objects: dict[int, tuple[object, str]] = {}
        self._seen: set = set()
        # Of what objects are that code may have, and the names of attributes in all code.
        self._classes: dict[type, None] = {}
        self._attributes: set[str] = set(_CALLED)
        # Of what no variable leads to, by identity.
        self._roots: dict[int, dict] = {}
        self._defaults: set[int] = set()
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

    def _root(self, text: str, value) -> dict:
        """In place of the globals, for what no variable leads to."""
        root = {text: value}
        self._roots[id(root)] = root
        return root

    def _of_hooks(self, hooks: dict | None, path: str) -> None:
        for hook in (hooks or {}).values():
            names = (f"the hook of {path}",)
            if isinstance(hook, types.MethodType) and has_attributes(hook.__self__):
                hook, names = hook.__self__, (*names, hook.__name__)
            self._note(OuterName(self._root(names[0], hook), names))

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
            if attributes_in(part) is not None:
                root = self._root(where, part)
                for name in sorted(self._attributes):
                    value = attribute_of(part, name)
                    if is_compared(value):
                        known = OuterName(root, (where, name))
                        self.found.setdefault(known.key, (known, value))

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
        if isinstance(function, functools._lru_cache_wrapper):
            function = function.__wrapped__
        if isinstance(function, functools.partial):
            self.of_function(function.func, cls)
        elif isinstance(function, types.MethodType):
            self.of_function(function.__func__, type(function.__self__))
        elif isinstance(function, types.FunctionType) and is_users(function.__code__.co_filename):
            code = function.__code__
            scope = _Scope(function.__globals__,
                           dict(zip(code.co_freevars, function.__closure__ or ())),
                           code.co_varnames[0] if owner and code.co_argcount else None, owner)
            self._of_code(code, scope, cls)
            self._of_defaults(function)

    def _of_defaults(self, function: types.FunctionType) -> None:
        """Containers and other objects that are defaults of parameters."""
        count = function.__code__.co_argcount
        names = function.__code__.co_varnames[:count]
        defaults = function.__defaults__ or ()
        for name, value in (*zip(names[count - len(defaults):], defaults),
                            *(function.__kwdefaults__ or {}).items()):
            text = f"the default of {name} of {function.__qualname__}"
            if type(value) not in VALUES and id(value) not in self._defaults:
                self._defaults.add(id(value))
                self._note(OuterName(self._root(text, value), (text,)))

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
        for name, is_set, place in _names_of(code, scope, self.stored):
            known = name if is_set else self._note(name)
            self.statements.setdefault(known.key, (set(), set()))[is_set].add((code, *place))
            if is_set:
                self.sets.setdefault(name.key, name)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._of_code(constant, scope, cls)
        if cls is not None:
            self._of_methods(cls, code.co_names)

    def _note(self, name: OuterName) -> OuterName:
        """Follows names for as long as they lead through modules, classes and objects; those that
        do."""
        value, owner, cls = value_in(name.root, name.names[0]), None, None
        for used in range(1, len(name.names) + 1):
            known = OuterName(name.root, name.names[:used])
            if used == len(name.names) or attributes_in(value) is None:
                break
            owner = known if has_attributes(value) else None
            self._meet(value, known.text)
            cls = value if isinstance(value, type) else type(value)
            inner = attribute_of(value, name.names[used])
            if inner is MISSING and is_compared(value):  # it may give out its items
                break
            value = inner
        if isinstance(value, classmethod):  # it may make an object
            self._of_class(cls)
            owner = OuterName(name.root, known.names[:-1])
        value = _function_of(value)
        self._meet(value, known.text)
        is_variable = id(known.root) not in self._roots \
            and (len(known.names) == 1 or cls is types.ModuleType)
        if is_variable and (has_attributes(value) or isinstance(value, _FUNCTIONS)):
            self.found.setdefault(known.key, (known, value))
        if has_attributes(value):
            self.of_function(attribute_of(value, "__call__"), type(value), known)
        elif isinstance(value, _FUNCTIONS):
            self.of_function(value, cls, owner)
        if is_compared(value):
            self.found.setdefault(known.key, (known, value))
            self.of_values(value, None)
        if isinstance(value, type):
            self._of_class(value)
        return known

    def _meet(self, value, path: str) -> None:
        """Takes note of the objects in a value: what is read of them is found out later."""
        for path, part in objects_within(value, path):
            self._draws.meet(part, path)
            if has_attributes(part):
                self.objects.setdefault(id(part), (part, path))


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


def _names_of(code, scope: _Scope, stored: set) -> Iterator[tuple[OuterName, bool, Place]]:
    """What code reads outside, and what it sets there (True), with the statements; variables that
    it sets are added to ``stored``."""
    name = changed = None  # what is loaded, and what ``+=`` changes an attribute of
    place, imports, before = None, Imports(scope.variables), ""
    place_of = places(code)
    for instruction in dis.get_instructions(code):
        kind, argument = instruction.opname, instruction.argval
        last, before = before, kind
        if kind in _ATTRIBUTE and name is not None:
            name = OuterName(name.root, (*name.names, argument))
            continue
        if kind == "COPY" and name is not None:
            changed = name
            continue
        if name is not None:
            yield name, False, place
        place = place_of[instruction.offset]
        holder = changed if name is None and last == "SWAP" else name
        if kind == "STORE_ATTR" and holder is not None:
            yield OuterName(holder.root, (*holder.names, argument)), True, place
        imported = imports.names(kind, argument)
        name = scope.named(kind, argument)
        if imported is not None:
            name = OuterName(sys.modules, imported)
        if kind in _STORES:
            root = scope.cells.get(argument, scope.variables)
            stored.add((id(root), argument))
            if kind == "STORE_GLOBAL" or argument in scope.cells:
                yield OuterName(root, (argument,)), True, place
    if name is not None:
        yield name, False, place


def _function_of(value):
    """The function of a property or a method that needs no object; another value as it is."""
    if isinstance(value, property):
        return value.fget
    if isinstance(value, functools.cached_property):
        return value.func
    return value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
