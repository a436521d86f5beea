"""Config files of options: a parser of setters with literal arguments. Nothing is executed."""

import ast
import enum
import os
import sys

import torch

from poptorch._annotations.strategy_rows import KINDS
from poptorch._base.checks import near_names
from poptorch.options._group import OptionGroup

# What arguments may build beside strategies, with the methods that may follow: descriptions, no
# actions.
_CONSTRUCTORS = ("TensorLocationSettings", "Stage", "Phase")
_GROUPS = ("Training", "Precision", "TensorLocations", "Distributed", "Jit", "_Popart", "_popart")


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
    """Applies each line of a file to ``options``.

    Args:
        options: the options object.
        path: the file.

    Raises:
        ConfigFileError: A line cannot be applied.
        OSError: The file cannot be read.
    """
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
                _apply(options, line)
            except Exception as error:  # whatever a setter raises is reported with its line
                words = error.msg if isinstance(error, SyntaxError) else str(error)
                raise ConfigFileError(
                    f"{type(error).__name__} at line {number} of {os.path.basename(path)}: "
                    f"{words}\n> options.{line}", path, number) from error


def _apply(options, line: str) -> None:
    tree = ast.parse(line, mode="eval").body
    calls = []
    while isinstance(tree, ast.Call):
        if not isinstance(tree.func, ast.Name | ast.Attribute):
            raise SyntaxError("expected the name of an option before the parenthesis")
        calls.append(tree)
        tree = tree.func.value if isinstance(tree.func, ast.Attribute) else None
    names = _names(tree) if tree is not None else []
    if not calls:
        raise SyntaxError("expected a call such as deviceIterations(4)")
    target = options
    for name in names:
        if name not in _GROUPS:
            raise AttributeError(f"Options has no group {name!r}.{near_names(name, _GROUPS)} "
                                 f"Groups: {', '.join(_GROUPS[:-2])}.")
        target = getattr(target, name)
    for call in reversed(calls):
        name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr
        target = _setter(target, name)(*_arguments(call), **_keywords(call))


def _names(tree) -> list[str]:
    if isinstance(tree, ast.Name):
        return [tree.id]
    if isinstance(tree, ast.Attribute):
        return [*_names(tree.value), tree.attr]
    raise SyntaxError("expected the name of an option before the parenthesis")


def _setter(target, name: str):
    """The public method of that name; never an attribute that a class does not define."""
    if name.startswith("_") or not callable(getattr(type(target), name, None)):
        raise AttributeError(target._unknown(name) if isinstance(target, OptionGroup) else
                             f"{type(target).__name__} has no method {name!r}.")
    if isinstance(target, OptionGroup):
        target._check_sets(name)
    return getattr(target, name)


def _arguments(call: ast.Call) -> list:
    return [_value(argument) for argument in call.args]


def _keywords(call: ast.Call) -> dict:
    if any(keyword.arg is None for keyword in call.keywords):
        raise SyntaxError("** is not allowed here: write the arguments out")
    return {keyword.arg: _value(keyword.value) for keyword in call.keywords}


def _value(tree):
    """The value of a literal, an enum member, a dtype, or a description built of them."""
    if isinstance(tree, ast.List | ast.Tuple | ast.Set):
        kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(tree)]
        return kind(_value(item) for item in tree.elts)
    if isinstance(tree, ast.Dict) and None not in tree.keys:
        return {_value(k): _value(v) for k, v in zip(tree.keys, tree.values)}
    if isinstance(tree, ast.Call):
        return _built(tree)
    if isinstance(tree, ast.Attribute | ast.Name):
        return _member(tree)
    try:
        return ast.literal_eval(tree)
    except ValueError:
        raise SyntaxError(f"{ast.unparse(tree)!r} is no plain value. Write numbers, strings, "
                          f"lists, dicts or members such as poptorch.OutputMode.All") from None


def _built(tree: ast.Call):
    function = tree.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
        return _setter(_built(function.value), function.attr)(*_arguments(tree),
                                                              **_keywords(tree))
    names = _names(function)
    known = (*_CONSTRUCTORS, *(kind.__name__ for kind in KINDS.values()))
    if len(names) != 2 or names[0] != "poptorch" or names[1] not in known:
        raise SyntaxError(f"{ast.unparse(function)}() may not be called here. Arguments may be "
                          f"built with poptorch.{', '.join(known)}.")
    made = getattr(sys.modules["poptorch"], names[1])(*_arguments(tree), **_keywords(tree))
    return made


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
