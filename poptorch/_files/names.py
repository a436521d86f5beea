"""What names in a file may stand for: classes and functions that the program has imported."""

import collections
import pathlib
import sys
import types

import torch

from poptorch.errors import Error

FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_MADE = (complex, collections.OrderedDict, collections.defaultdict, collections.deque,
         collections.Counter, types.SimpleNamespace, pathlib.PosixPath, pathlib.PurePosixPath)
# Classes of the standard library that are data and nothing else.
_DATA = {cls: f"{cls.__module__}:{cls.__qualname__}" for cls in (
    bool, int, float, str, bytes, list, tuple, dict, set, frozenset, object, type(None), *_MADE)}
# Those whose objects __new__ makes when a file is read; others have no
# attributes, and some (bytes of a given length) take as much memory as a number says.
_OBJECTS = (object, complex)
# What objects are made by that have no plain state: these are called when a file is read.
MAKERS = {f"{f.__module__}:{f.__qualname__}": f for f in (*_MADE, range, slice, torch.Size)}
MAKERS["torch:device"] = torch.device
# Values of torch that are written by their name.
VALUES = (torch.dtype, torch.memory_format, torch.layout)
# Where functions of torch may come from: those that compute.
TORCH_FUNCTIONS = ("torch", "torch.nn.functional", "torch._C._nn", "torch.special")


def found(module: str, name: str):
    """What an imported module has under a name, by tables alone: ``__getattr__`` may import."""
    value = sys.modules.get(module)
    for part in name.split("."):
        value = None if value is None else vars(value).get(part)
        if not isinstance(value, (type, *FUNCTIONS)):
            return None
    return value


def _imported(reference: str):
    module, _, name = reference.partition(":")
    value = found(module, name)
    if value is None and module == "__main__":
        raise Error(f"[load] the file needs {name}, which the script that wrote it defined and "
                    f"this script does not. Define it here, or move it to a module that both "
                    f"import.")
    if value is None:
        raise Error(f"[load] the file needs {module}.{name}, which this program has not imported. "
                    f"Files import nothing themselves: import {module} before loading.")
    return value


def class_of(reference: str) -> type:
    """The class of that name, if a file may name it."""
    cls, module = _imported(reference), reference.partition(":")[0]
    top = module.partition(".")[0]
    allowed = isinstance(cls, type)
    if top in sys.stdlib_module_names:
        allowed = allowed and _DATA.get(cls) == reference
    elif top == "torch":
        allowed = allowed and (module.startswith(("torch.nn.", "torch.optim."))
                               or module in ("torch.optim", "torch.return_types")
                               or cls in (torch.Size, torch.Tensor))
    if not allowed:
        raise _forbidden(reference)
    return cls


def function_of(reference: str):
    """The function of that name, if a file may name it."""
    function, module = _imported(reference), reference.partition(":")[0]
    top = module.partition(".")[0]
    allowed = isinstance(function, FUNCTIONS) and top not in sys.stdlib_module_names
    if not allowed or (top == "torch" and module not in TORCH_FUNCTIONS):
        raise _forbidden(reference)
    return function


def object_class(reference: str) -> type:
    """The class of that name, if a file may have objects of it that no maker makes."""
    cls = class_of(reference)
    if cls in _DATA and cls not in _OBJECTS:
        raise ValueError(f"an object of {reference}")
    return cls


def _forbidden(reference: str) -> Error:
    return Error(f"[load] the file names {reference.replace(':', '.')}, which is not a class for "
                 f"data or models. Do not use this file: poptorch does not write such names.")
