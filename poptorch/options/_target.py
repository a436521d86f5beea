"""Machines that users describe for estimates: their fields, from TOML files or dicts."""

import math
import os
from pathlib import Path
from typing import Any

from poptorch import _C
from poptorch._base.checks import Check, near_names

_TEXTS = ("name", "base", "source")


class Machine(Check):
    """The name of a row of ``csrc/device/targets.def``, the path of a TOML file, or a dict.

    A file is read at once and kept as a dict: its fields, ``name`` and, if given, ``base`` and
    ``source``.
    """

    kinds = (str, os.PathLike, dict)

    @property
    def text(self) -> str:
        """The names, and the two forms of other machines."""
        return f"one of {', '.join(rows())}, the path of a .toml file, or a dict of fields"

    def __call__(self, value, option: str) -> str | dict[str, Any]:
        if not isinstance(value, self.kinds):
            raise self.wrong_type(value, option)
        if isinstance(value, dict):
            return _checked(value, f"[{option}]")
        path = os.fspath(value)
        if path in rows():
            return path
        if not path.endswith(".toml"):
            raise ValueError(f"{self.out_of_range(value, option)}{near_names(path, rows())}")
        fields = _read(Path(path), option)
        return _checked({"name": Path(path).stem, **fields}, f"[{option}] {path}:")


def rows() -> dict[str, dict[str, Any]]:
    """The fields of each machine that poptorch knows, by name."""
    return {row["name"]: row for row in _C.targets()}


def complete(target: str | dict[str, Any]) -> str | dict[str, Any]:
    """A target as the core takes it: a name, or all fields, with those that ``base`` gives."""
    if isinstance(target, str):
        return target
    base = rows()[target["base"]] if "base" in target else {}
    fields = {**base, "source": "", **target}
    fields.pop("base", None)
    return fields


def _read(path: Path, option: str) -> dict[str, Any]:
    import tomllib  # few programs have such a file

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"[{option}] {path}: not a TOML file: {error}. Write one field on each "
                         f"line, such as tiles = 1472.") from None


def _checked(fields: dict[str, Any], where: str) -> dict[str, Any]:
    """The fields with numbers of the right type, or a ValueError that names the first bad one."""
    rules = {name: (is_int, least) for name, is_int, least, _ in _C.target_fields()}
    for name in fields:
        if name not in (*_TEXTS, *rules):
            raise ValueError(f"{where} unknown field {name!r}.{near_names(str(name), rules)} "
                             f"Fields: {', '.join((*_TEXTS, *rules))}.")
    out = {name: _text(name, fields[name], where) for name in _TEXTS if name in fields}
    if not out.get("name") or out["name"] in rows():
        raise ValueError(f"{where} name: expected a name that poptorch does not use itself, got "
                         f"{out.get('name')!r}. Set name to that of your machine.")
    if "base" not in out and (missing := [name for name in rules if name not in fields]):
        raise ValueError(f"{where} missing fields: {', '.join(missing)}. Add them, or take them "
                         f"from a known machine with base = \"gc200\".")
    out |= {name: _number(name, fields[name], where, *rules[name])
            for name in rules if name in fields}
    whole = complete(out)
    if whole["interleaved_start"] >= whole["tile_bytes"]:
        raise ValueError(f"{where} interleaved_start {whole['interleaved_start']} is not below "
                         f"tile_bytes {whole['tile_bytes']}. Set both.")
    return out


def _text(name: str, value: Any, where: str) -> str:
    if not isinstance(value, str) or (name == "base" and value not in rows()):
        what = f"one of {', '.join(rows())}" if name == "base" else "a text"
        raise ValueError(f"{where} {name}: expected {what}, got {value!r}.")
    return value


def _number(name: str, value: Any, where: str, is_int: bool, least: float) -> int | float:
    kinds = (int,) if is_int else (int, float)
    if not isinstance(value, kinds) or isinstance(value, bool) or not least <= value < math.inf:
        kind = "an int" if is_int else "a finite number"
        limit = f"of at least {least}" if is_int or least == 0 else "above 0"
        raise ValueError(f"{where} {name}: expected {kind} {limit}, got {value!r}.")
    return value if is_int else float(value)
