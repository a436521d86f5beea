"""A model from a Python file, for a command. ``where`` is its name, for messages."""

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from poptorch.errors import Error


def read(target: str, where: str) -> tuple[ModuleType, torch.nn.Module]:
    """The module of ``file.py:Model`` and the model."""
    if target.endswith(".pt2"):
        raise Error(f"[{where}] {target} is a torch.export program, and commands take Python "
                    f"files. In Python, pass torch.export.load({target!r}) to inferenceModel() and "
                    f"call compileAndExport() with export_model=False: poptorch-run runs the file.")
    path, _, name = target.rpartition(":")
    if not path or not name:
        raise Error(f"[{where}] expected file.py:Name, got {target!r}. Pass a Python file and the "
                    f"name of a class, function or module in it, such as net.py:Net.")
    module = module_of(path, where)
    torch.manual_seed(0)
    return module, _made(found(module, name, where), target, where)


def module_of(file: str, where: str) -> ModuleType:
    """The module of a Python file."""
    path = Path(file)
    if not path.is_file():
        raise Error(f"[{where}] there is no file {path}. Give the path of a Python file.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # classes are found by the name of their module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module


def found(module: ModuleType, name: str, where: str, advice: str = "") -> Any:
    """The object of that name in a file; an Error with ``advice`` if there is none."""
    if not hasattr(module, name):
        names = [key for key, value in vars(module).items()
                 if not key.startswith("_") and not inspect.ismodule(value)]
        raise Error(f"[{where}] {module.__file__} does not define {name}. It defines "
                    f"{', '.join(names) or 'nothing'}.{advice}")
    return getattr(module, name)


def inputs(module: ModuleType, where: str, advice: str) -> tuple:
    """The arguments that a file names ``inputs``: a tuple, or a function that makes them."""
    given = found(module, "inputs", where, advice)
    given = given() if callable(given) else given
    return tuple(given) if isinstance(given, (tuple, list)) else (given,)


def _made(thing: Any, target: str, where: str) -> torch.nn.Module:
    if isinstance(thing, torch.nn.Module):
        return thing
    if not callable(thing):
        raise Error(f"[{where}] {target} is an object of {type(thing).__name__}. Name a "
                    f"torch.nn.Module, its class, or a function that makes one.")
    try:
        inspect.signature(thing).bind()
    except TypeError as error:
        raise Error(f"[{where}] {target} needs arguments to make the model ({error}). Name a "
                    f"function without any, such as `def make(): return "
                    f"{target.rpartition(':')[2]}(...)`, or the model.") from None
    model = thing()
    if not isinstance(model, torch.nn.Module):
        raise Error(f"[{where}] {target} returned an object of {type(model).__name__}. It must "
                    f"return a torch.nn.Module.")
    return model
