"""The options of a model, as the command line gives them."""

import json
from types import ModuleType
from typing import Any

from poptorch._command.given import model_file
from poptorch.errors import Error
from poptorch.options import Options


def of(module: ModuleType, words: list[str], where: str) -> Options:
    """The options of the words ``NAME=VALUE`` and ``file.py:name``.

    Settings change the options of a file: the one that is named, or else ``options`` of the
    model's file, if it has some.
    """
    return changed(_of_module(module), words, where)


def changed(base: Options, words: list[str], where: str) -> Options:
    """Options with the settings of words; ``file.py:name`` stands for others than ``base``."""
    files = [word for word in words if "=" not in word]
    if len(files) > 1:
        raise Error(f"[{where}] expected one file.py:name with options, got {' and '.join(files)}. "
                    f"Leave one out.")
    base = _of_file(files[0], where) if files else base
    changes = dict(_setting(word) for word in words if "=" in word)
    try:
        return Options.fromDict({**base.toDict(), **changes}) if changes else base
    except (ValueError, TypeError) as error:
        raise Error(str(error)) from None


def _of_module(module: ModuleType) -> Options:
    given = _made(getattr(module, "options", None))
    return given if isinstance(given, Options) else Options()


def _of_file(target: str, where: str) -> Options:
    path, _, name = target.rpartition(":")
    if not path or not name:
        raise Error(f"[{where}] expected an option like device_iterations=4 or file.py:name, got "
                    f"{target!r}. Use the names of Options.toDict(), or name an Options object.")
    given = _made(model_file.found(model_file.module_of(path, where), name, where))
    if not isinstance(given, Options):
        raise Error(f"[{where}] {target} is an object of {type(given).__name__}. Name a "
                    f"poptorch.Options, or a function that makes one.")
    return given


def _made(given: Any) -> Any:
    return given() if callable(given) else given


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # a text without quotes
