"""What ``forward`` reads of globals, and of variables of functions around it.

Nothing of Python reports that one is read, so the names are those in the code of ``forward``, of
hooks, and of the user's functions and classes that these refer to; some may be those of a branch
that did not run.
"""

import functools
import sys
import types
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import torch

from poptorch._base.value_snapshot import (
    MISSING,
    VALUES,
    attribute_of,
    has_attributes,
    is_compared,
    is_foreign,
    objects_within,
)
from poptorch._capture.graph.module_clones import HOOKS
from poptorch._guards.guard import Guard, HeldAttribute, Kind
from poptorch._guards.host_randomness import Draws
from poptorch._guards.outer_name import OuterName, attributes_in, value_in
from poptorch._guards.statements import Instruction, instructions, is_users

_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial,
              functools._lru_cache_wrapper)
# What has a function in an attribute.
_WRAPPERS = {functools._lru_cache_wrapper: "__wrapped__", functools.partial: "func",
             property: "fget", functools.cached_property: "func", staticmethod: "__func__",
             classmethod: "__func__"}
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_OUTER = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
# Methods that are called without that code names them: those of objects, modules, and functions
# with a gradient of their own.
_CALLED = frozenset({"__init__", "__call__", "forward", "backward", "setup_context"})
_CONTAINERS = frozenset({dict, OrderedDict, list, tuple, set})
_STORES = frozenset({"STORE_GLOBAL", "STORE_DEREF", "DELETE_GLOBAL", "DELETE_DEREF"})


# A root, with names from there on, as OuterName has them.
_Path = tuple[dict | types.CellType, tuple[str, ...]]


def names_outside(module: torch.nn.Module, arguments, draws: Draws) \
        -> tuple[list[OuterName], list[tuple[object, str]]]:
    """The names outside that ``forward`` may read or set.

    Args:
        module: the outermost module.
        arguments: of the call, which may hold functions.
        draws: receives all objects that names lead to.

    Returns:
        The names, and the objects that they lead to, with their paths.
    """
    walk = _walked(module, arguments, draws)
    return list(walk.names.values()), list(walk.objects.values())


def guards_without_capture(module: torch.nn.Module) -> list[Guard]:
    """The guards of what code of the module names outside of it, with the present values: for a
    program from a file, which is not captured. Of objects, attributes that code names count."""
    walk = _walked(module, (), Draws())
    found = [name.guard() for name in walk.names.values() if name.before is not None]
    for holder, path in walk.objects.values():
        if not isinstance(holder, torch.nn.Module):
            own = object.__getattribute__(holder, "__dict__")
            for name in sorted(walk.attributes & own.keys()):
                if is_compared(own[name]):
                    held = HeldAttribute(holder, name, f"{path}.{name}")
                    found += held.guards(Kind.POSSIBLE)
    return found


def _walked(module: torch.nn.Module, arguments, draws: Draws) -> "_Walk":
    walk = _Walk(draws)
    for path, part in module.named_modules():
        walk.of_module(part, path)
    walk.of_values(arguments, None, "arguments")
    walk.of_classes()
    walk.of_held()
    for key, name in walk.names.items():
        name.begin(is_read=key in walk.found and key[:2] not in walk.stored)
    return walk


class _Walk:
    """Goes through functions and what they refer to, each once."""

    def __init__(self, draws: Draws):
        self._draws = draws
        # By identity of the root, and names; those that have values to compare; and variables that
        # code sets.
        self.names: dict[tuple, OuterName] = {}
        self.found: dict[tuple, None] = {}
        self.stored: set[tuple] = set()
        self.objects: dict[int, tuple[object, str]] = {}
        self._seen: set = set()
        # Of what objects are that code may have, and the names of attributes in all code.
        self._classes: dict[type, dict] = {}
        self.attributes: set[str] = set(_CALLED)
        # In place of the globals, for what no variable leads to, by identity of the value.
        self._roots: dict[int, dict] = {}
        # Classes and files of code that are held as values, by identity, with a path.
        self._held: dict[int, tuple[str, object]] = {}

    def of_module(self, module: torch.nn.Module, path: str) -> None:
        """A module: its methods, hooks, and what it holds."""
        self._of_methods(type(module), ("forward", "__call__"))
        for name, value in vars(module).items():
            is_plain = type(value) in VALUES or type(value) in _CONTAINERS and not value
            if not is_plain and name not in ("_parameters", "_buffers", "_modules"):
                self.of_values(value, type(module), f"{path}.{name}".lstrip("."))
        for kind in HOOKS:
            self._of_hooks(getattr(module, kind), path or "the module")
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and tensor.requires_grad:
                self._of_hooks(tensor._backward_hooks, f"{path}.{name}".lstrip("."))

    def _of_hooks(self, hooks: dict | None, path: str) -> None:
        for hook in (hooks or {}).values():
            self._of_unnamed(f"the hook of {path}", hook)

    def _of_unnamed(self, text: str, value) -> None:
        """A value that no variable leads to."""
        if type(value) not in VALUES:
            self._note(*self._path_of(text, value))

    def _path_of(self, text: str, value) -> _Path:
        root = self._roots.setdefault(id(value), {text: value})
        return root, tuple(root)

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
            root, names = self._path_of(where, part)
            for name in sorted(self.attributes) if attributes_in(part) is not None else ():
                if is_compared(attribute_of(part, name)):
                    self._name(root, (*names, name), is_found=True)

    def _of_class(self, cls: type) -> None:
        if not is_foreign(cls):
            self._classes.setdefault(cls, {cls.__name__: cls})

    def of_classes(self) -> None:
        """The methods of all classes, as far as code names them: which object it calls them of is
        not known before it runs. So other code's reads of what they set still count."""
        done, read, stored, self.stored = None, set(self.found), self.stored, set()
        while done != (len(self._classes), len(self.attributes)):
            done = len(self._classes), len(self.attributes)
            for cls in list(self._classes):
                self._of_methods(cls, frozenset(self.attributes))
        for key in self.found.keys() - read:
            if key[:2] in self.stored:
                del self.found[key]
        self.stored = stored

    def of_function(self, function, cls: type | None) -> None:
        """A function or what has one: a method, a property, a partial function.

        Args:
            function: or any other value, which is passed over.
            cls: whose methods its first argument has.
        """
        first = None  # the class that the first argument is
        if isinstance(function, types.MethodType):
            owner, function = function.__self__, function.__func__
            first = cls = owner if isinstance(owner, type) else None
            cls = cls or type(owner)
        elif isinstance(function, (classmethod, types.ClassMethodDescriptorType)):
            first = cls
        elif isinstance(function, types.BuiltinMethodType) and isinstance(function.__self__, type):
            first = function.__self__  # of torch 2.15, apply of a torch.autograd.Function
        if first is not None:  # it may make an object
            self._of_class(first)
        for kind, name in _WRAPPERS.items():
            if isinstance(function, kind):
                function = getattr(function, name)
        if isinstance(function, types.FunctionType) and is_users(function.__code__.co_filename):
            scope = _Scope(function.__globals__, dict(zip(
                function.__code__.co_freevars, function.__closure__ or ())), {})
            if first in self._classes and function.__code__.co_argcount:
                scope.locals[function.__code__.co_varnames[0]] = \
                    self._classes[first], (first.__name__,)
            self._of_code(function.__code__, scope, cls)
            self._of_defaults(function)

    def _of_defaults(self, function: types.FunctionType) -> None:
        """Containers and other objects that are defaults of parameters."""
        names = function.__code__.co_varnames[:function.__code__.co_argcount]
        defaults = function.__defaults__ or ()
        for name, value in (*zip(names[len(names) - len(defaults):], defaults),
                            *(function.__kwdefaults__ or {}).items()):
            if id(value) not in self._roots:
                self._of_unnamed(f"the default of {name} of {function.__qualname__}", value)

    def _of_methods(self, cls: type, names) -> None:
        for owner in cls.__mro__:
            for name, value in () if is_foreign(owner) else list(vars(owner).items()):
                if name in names:
                    self.of_function(value, cls)

    def _of_code(self, code, scope: "_Scope", cls: type | None) -> None:
        key = code, cls, *scope.locals, *map(id, scope.cells.values())
        if key in self._seen:
            return
        self._seen.add(key)
        self.attributes.update(code.co_names)
        for (root, names), is_set, offset in _names_of(code, scope):
            if not is_set:
                self._note(root, names).reads.add((code, offset))
            elif len(names) == 1 or attributes_in(OuterName(root, names).holder()) is not None:
                self._name(root, names).sets.add((code, offset))
                if len(names) == 1:
                    self.stored.add((id(root), *names))
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._of_code(constant, scope, cls)
        if cls is not None:
            self._of_methods(cls, code.co_names)

    def _name(self, root, names: tuple[str, ...], is_found: bool = False) -> OuterName:
        key = id(root), *names
        if is_found:
            self.found[key] = None
        return self.names.setdefault(key, OuterName(root, names))

    def _note(self, root, names: tuple[str, ...]) -> OuterName:
        """Follows names for as long as they lead through Python modules, classes and namespaces;
        those that do."""
        value, holder, used = value_in(root, names[0]), None, 1
        while used < len(names) and attributes_in(value) is not None:
            self._meet(value, ".".join(names[:used]))
            inner = attribute_of(value, names[used])
            if inner is MISSING and is_compared(value):  # it may give out its items
                break
            holder, value, used = value, inner, used + 1
        self._meet(value, ".".join(names[:used]))
        cls = holder if isinstance(holder, type) else None
        self.of_function(value, cls)
        self.of_values(value, cls)
        is_variable = not any(root is one for one in self._roots.values()) \
            and (holder is None or isinstance(holder, types.ModuleType))
        return self._name(root, names[:used], is_found=is_compared(value) or is_variable and (
            has_attributes(value) or isinstance(value, _FUNCTIONS)))

    def _meet(self, value, path: str) -> None:
        """Takes note of the objects in a value: what is read of them is found out later."""
        for path, part in objects_within(value, path):
            self._draws.meet(part, path)
            if has_attributes(part):
                self.objects.setdefault(id(part), (part, path))


class _Scope(NamedTuple):
    """What variables stand for in a function.

    Attributes:
        variables: the globals.
        cells: variables of functions around it.
        locals: a first argument that is a class, and what is imported inside of the function.
    """

    variables: dict
    cells: dict
    locals: dict[str, _Path]

    def path(self, kind: str, name: str) -> _Path | None:
        """What an instruction reads outside of the function; None: nothing."""
        if kind in _GLOBAL and name in self.variables:
            return self.variables, (name,)
        if kind in _OUTER and name in self.cells:
            return self.cells[name], (name,)
        return self.locals.get(name) if kind == "LOAD_FAST" else None


def _names_of(code, scope: _Scope) -> Iterator[tuple[_Path, bool, int]]:
    """What code reads outside, and what it sets there (True), with offsets of instructions."""
    path = changed = None  # what is loaded, and what ``+=`` changes an attribute of
    offset, imported, last = 0, None, []
    for instruction in instructions(code):
        kind, argument = instruction.opname, instruction.argval
        last = [*last[-2:], instruction]
        if kind in _ATTRIBUTE and path is not None:
            path = path[0], (*path[1], argument)
            continue
        if kind == "COPY" and path is not None:
            changed = path
            continue
        if path is not None:
            yield path, False, offset
        offset, is_swapped = instruction.offset, last[-2:][0].opname == "SWAP"
        holder = changed if path is None and is_swapped else path
        if kind == "STORE_ATTR" and holder is not None:
            yield (holder[0], (*holder[1], argument)), True, offset
        path = scope.path(kind, argument)
        imported = _imported(imported, last, scope)
        if kind in _STORES and (kind.endswith("_GLOBAL") or argument in scope.cells):
            yield (scope.cells.get(argument, scope.variables), (argument,)), True, offset
    if path is not None:
        yield path, False, offset


def _imported(base: _Path | None, last: list[Instruction], scope: _Scope) -> _Path | None:
    """What a statement of import has loaded after an instruction, the last one of three; a
    variable that it is given stands for it from then on."""
    kind, argument = last[-1].opname, last[-1].argval
    if kind == "IMPORT_NAME":
        level, wanted = (one.argval for one in last[:2])
        package = (scope.variables.get("__package__") or "").rsplit(".", max(level - 1, 0))[0]
        name = f"{package}.{argument}".strip(".") if level else argument
        return sys.modules, (name if wanted else name.partition(".")[0],)
    if kind == "IMPORT_FROM" and base is not None:
        return base[0], (*base[1], argument)
    if kind == "STORE_FAST":
        scope.locals.pop(argument, None)
        if base is not None:
            scope.locals[argument] = base
            is_from = last[-2].opname == "IMPORT_FROM"
            return (base[0], base[1][:-1]) if is_from else None
    return base if kind in ("SWAP", "POP_TOP") else None
