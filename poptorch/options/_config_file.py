"""Config files of options: a parser of setters with literal arguments. Nothing is executed."""

import ast
import enum
import os
import sys
from collections.abc import Callable

import torch

from poptorch._annotations.strategy_rows import KINDS
from poptorch._base.checks import near_names
from poptorch.options._group import OptionGroup

# What arguments may build in addition to strategies, with the methods that may follow:
# descriptions, not actions.
_CONSTRUCTORS = ("TensorLocationSettings", "Stage", "Phase")


class ConfigFileError(ValueError):
    """A line of a config file that cannot be applied.

    Args:
        message: the whole text.
        file: path of the file.
        line: number of the line, from 1.

    Example:
        >>> import poptorch
        >>> error = poptorch.options.ConfigFileError("SyntaxError ...", "run.cfg", 3)
        >>> error.file, error.line
        ('run.cfg', 3)
    """

    def __init__(self, message: str = "", file: str = "", line: int = 0):
        super().__init__(message)
        self.file = file
        self.line = line


def load_config_file(options, path) -> None:
    """Applies each line of a file to ``options``; raises as :meth:`Options.loadFromFile`."""
    path = os.fspath(path)
    with open(path, "rb") as file:
        contents = file.read()
    try:
        lines = contents.decode().splitlines()
    except UnicodeDecodeError as error:
        line = contents.count(b"\n", 0, error.start) + 1
        raise ConfigFileError(f"UnicodeDecodeError at line {line} of {os.path.basename(path)}: "
                              f"byte {contents[error.start]:#04x} is not UTF-8. Save the file as "
                              f"UTF-8 text.", path, line) from None
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if line and not line.startswith("#"):
            try:
                _apply(options, ast.parse(line, mode="eval").body)
            except Exception as error:  # whatever a setter raises is reported with its line
                words = error.msg if isinstance(error, SyntaxError) else str(error)
                raise ConfigFileError(
                    f"{type(error).__name__} at line {number} of {os.path.basename(path)}: "
                    f"{words}\n> options.{line}", path, number) from error


def _apply(options, tree: ast.expr) -> None:
    if not isinstance(tree, ast.Call):
        raise SyntaxError("expected a call such as deviceIterations(4)")
    _call(tree, options._find_setter)


def _call(tree: ast.Call, find: Callable):
    """Calls what ``find`` gives for a list of names, and then methods of the results."""
    function = tree.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
        found = _method(_call(function.value, find), function.attr)
    else:
        found = find(_names(function))
    if any(keyword.arg is None for keyword in tree.keywords):
        raise SyntaxError("** is not allowed here: write the arguments out")
    return found(*map(_value, tree.args),
                 **{keyword.arg: _value(keyword.value) for keyword in tree.keywords})


def _names(tree) -> list[str]:
    if isinstance(tree, ast.Name):
        return [tree.id]
    if isinstance(tree, ast.Attribute):
        return [*_names(tree.value), tree.attr]
    raise SyntaxError("expected the name of an option before the parenthesis")


def _method(target, name: str):
    """The public method of that name; never an attribute that a class does not define."""
    if isinstance(target, OptionGroup):
        return target._setter(name)
    if name.startswith("_") or not callable(getattr(type(target), name, None)):
        raise AttributeError(f"{type(target).__name__} has no method {name!r}.")
    return getattr(target, name)


def _value(tree):
    """The value of a literal, an enum member, a dtype, or a description built of them."""
    if isinstance(tree, ast.List | ast.Tuple | ast.Set):
        kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(tree)]
        return kind(_value(item) for item in tree.elts)
    if isinstance(tree, ast.Dict) and None not in tree.keys:
        return {_value(k): _value(v) for k, v in zip(tree.keys, tree.values)}
    if isinstance(tree, ast.Call):
        return _call(tree, _constructor)
    if isinstance(tree, ast.Attribute | ast.Name):
        return _member(tree)
    try:
        return ast.literal_eval(tree)
    except ValueError:
        raise SyntaxError(f"{ast.unparse(tree)!r} is not a plain value. Write numbers, strings, "
                          f"lists, dicts or members such as poptorch.OutputMode.All") from None


def _constructor(names: list[str]) -> Callable:
    known = (*_CONSTRUCTORS, *(kind.__name__ for kind in KINDS.values()))
    if len(names) != 2 or names[0] != "poptorch" or names[1] not in known:
        raise SyntaxError(f"{'.'.join(names)}() may not be called here. Arguments may be "
                          f"built with poptorch.{', '.join(known)}.")
    return getattr(sys.modules["poptorch"], names[1])


def _member(tree):
    names = _names(tree)
    poptorch = sys.modules["poptorch"]
    if names[0] == "torch" and len(names) == 2:
        dtype = getattr(torch, names[1], None)
        if isinstance(dtype, torch.dtype):
            return dtype
    elif names[0] == "poptorch" and len(names) == 3:
        kind = getattr(poptorch, names[1], None)
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            if names[2] not in kind.__members__:
                raise AttributeError(f"{names[1]} has no member {names[2]!r}."
                                     f"{near_names(names[2], kind.__members__)} Members: "
                                     f"{', '.join(kind.__members__)}.")
            return kind[names[2]]
        kinds = [name for name in dir(poptorch.enums) if name[0].isupper()]
        raise AttributeError(f"poptorch has no enum {names[1]!r}.{near_names(names[1], kinds)}")
    raise NameError(f"name {ast.unparse(tree)!r} is not known here: write plain values, or "
                    f"members such as poptorch.OutputMode.All")
