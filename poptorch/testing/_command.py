"""What ``python -m poptorch compare`` does: a model from a file, its arguments, the comparison."""

import importlib.util
import inspect
import sys
from pathlib import Path

import torch

from poptorch.errors import Error
from poptorch.options import Options
from poptorch.testing._compare import compare
from poptorch.testing._comparison import Comparison


def compare_file(target: str, shapes: list[str], training: bool, steps: int,
                 config: str | None) -> Comparison:
    """Compares a model of a file with PyTorch; the arguments are those of the command."""
    path, _, name = target.rpartition(":")
    if not path or not name:
        raise Error(f"[compare] expected file.py:Model, got {target!r}. Name the file and what "
                    f"makes the model in it.")
    module = _module_of(Path(path))
    torch.manual_seed(0)
    model = _made(_found(module, name, path), target)
    inputs = [_drawn(shape) for shape in shapes] or _found(module, "inputs", path)
    inputs = inputs() if callable(inputs) else inputs
    inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    options = Options()
    if config is not None:
        options.loadFromFile(config)
    return compare(model, *inputs, steps=steps, training=training, options=options)


def _module_of(path: Path):
    if not path.is_file():
        raise Error(f"[compare] there is no file {path}. Give the path of a Python file.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # classes are found by the name of their module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module


def _found(module, name: str, path: str):
    if not hasattr(module, name):
        names = [key for key in vars(module) if not key.startswith("_")]
        more = " Give shapes of the arguments with --shape." if name == "inputs" else ""
        raise Error(f"[compare] {path} has no {name}. It has {', '.join(names) or 'nothing'}."
                    f"{more}")
    return getattr(module, name)


def _made(found, target: str) -> torch.nn.Module:
    if isinstance(found, torch.nn.Module):
        return found
    if not callable(found):
        raise Error(f"[compare] {target} is an object of {type(found).__name__}. Name a "
                    f"torch.nn.Module, its class, or a function that makes one.")
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise Error(f"[compare] {target} needs arguments to make the model ({error}). Name a "
                    f"function without any, such as `def make(): return "
                    f"{target.rpartition(':')[2]}(...)`, or the model.") from None
    model = found()
    if not isinstance(model, torch.nn.Module):
        raise Error(f"[compare] {target} gave an object of {type(model).__name__}. It must make a "
                    f"torch.nn.Module.")
    return model


def _drawn(text: str) -> torch.Tensor:
    sizes, _, kind = text.partition(":")
    try:
        shape = [int(size) for size in sizes.split(",") if size]
        if not kind:
            return torch.randn(shape)
        if kind.startswith("int"):
            return torch.randint(0, int(kind.removeprefix("int")), shape)
    except (ValueError, RuntimeError):
        pass
    raise Error(f"[compare] expected a shape like 8,3,32,32 or 8,20:int100, got {text!r}. Sizes "
                f"are separated by commas.")
