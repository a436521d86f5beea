"""Empty classes for those that a file names and this process has not imported.

A compiled program needs no code of its module, only classes of the same names.
"""

import contextlib
import enum
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from poptorch._files import names
from poptorch._files.executable import File

# A file cannot name classes of these that are not imported: nothing takes their place.
_NEVER = {"torch", "poptorch", *sys.stdlib_module_names}


def made(file: File) -> dict[str, Any]:
    """Classes and functions for all names that the module of a file needs and nobody imported."""
    with file.guard("model.json"):
        entries = list(_entries(json.loads(file._needed("model.json"))))
    missing: dict[str, list[dict]] = {}
    for entry in entries:
        if "param_groups" in _attributes(entry):  # the kind of an optimizer says what it does
            continue
        reference = next((entry[kind] for kind in _KINDS if kind in entry), "")
        module, _, name = str(reference).partition(":")
        if name and module.partition(".")[0] not in _NEVER and names.found(module, name) is None:
            missing.setdefault(reference, []).append(entry)
    if not missing:
        return {}
    parameters = file.document("interface")["arguments"]["structure"][2]
    things = {reference: _stand_in(reference, uses, parameters)
              for reference, uses in missing.items()}
    _set_class_attributes(file, list(things.values()))
    return things


@contextlib.contextmanager
def found_by_name(things: dict[str, Any]) -> Iterator[None]:
    """Has what :func:`made` returned under its names, while a file is read or written."""
    with contextlib.ExitStack() as undo:
        for reference, thing in things.items():
            _put(reference, thing, undo)
        yield


_KINDS = ("object", "class", "function", "enum")


def _entries(value) -> Iterator[dict]:
    """All JSON objects in a value."""
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield part
            left += part.values()
        elif isinstance(part, list):
            left += part


def _stand_in(reference: str, uses: list[dict], parameters: tuple[str, ...]):
    module, _, path = reference.partition(":")
    name = path.rpartition(".")[2]
    members = [member for use in uses for member in use.get("names", ())]
    if any("function" in use for use in uses):
        thing = _without_code()
    elif any("enum" in use for use in uses):
        thing = enum.Enum(name, list(dict.fromkeys(members)))
    elif not any("_modules" in _attributes(use) for use in uses):
        thing = type(name, (), {})
    else:
        thing = type(name, (torch.nn.Module,), {"forward": _forward(parameters)})
    thing.__module__, thing.__qualname__ = module, path
    return thing


def _attributes(entry: dict) -> list:
    """The names of the attributes of an object."""
    state = entry.get("state")
    return [pair[0] for pair in state.get("dict", ())] if isinstance(state, dict) else []


def _without_code() -> Callable:
    """A function that raises."""
    def function(*_, **__):
        raise NotImplementedError("a program from a file does not have the code of its module")
    return function


def _forward(parameters: tuple[str, ...]) -> Callable:
    """A method with these parameters: those of the outermost module are looked at."""
    forward = _without_code()
    forward.__signature__ = inspect.Signature([
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for name in ("self", *parameters)])
    return forward


def _put(reference: str, thing, undo: contextlib.ExitStack) -> None:
    """Enters what stands in for a name, until ``undo`` is closed."""
    module, _, name = reference.partition(":")
    if module not in sys.modules:
        sys.modules[module] = ModuleType(module)
        undo.callback(sys.modules.pop, module)
    holder = sys.modules[module]
    *outer, last = name.split(".")
    for part in outer:
        if part not in vars(holder):
            setattr(holder, part, type(part, (), {}))
            undo.callback(delattr, holder, part)
        holder = vars(holder)[part]
    setattr(holder, last, thing)
    undo.callback(delattr, holder, last)


def _set_class_attributes(file: File, made_classes: list) -> None:
    """Gives classes the plain attributes that ``forward`` read: an object may have none of its own.
    """
    class_of = {layer["path"]: layer["class"] for layer in file.document("module")["layers"]}
    for path, name, value in file.document("interface")["attributes"]:
        kind = class_of.get(path.rpartition(".")[0])
        for cls in made_classes:
            if value and isinstance(cls, type) and cls.__name__ == kind and name not in vars(cls):
                setattr(cls, name, value[0])
