"""Checks that data from a file have the form that the program goes on to rely on."""

import types
from typing import get_args

_SHOWN = 60  # characters of a value in a message


def check(value, form, where: str) -> None:
    """Checks plain data that was read from ``where``; a ValueError says what was expected.

    A ``form`` is a class or a union of classes; ``[form]``: a list of such; ``(form, ...)``: a
    tuple of just these; ``{key: form}``: a dictionary of just these keys, or, where the only key is
    a class, of any keys of that class; a set: one of its members.
    """
    if isinstance(form, (type, types.UnionType)):
        _need(_is_of(value, form), value, where, getattr(form, "__name__", str(form)))
    elif isinstance(form, list):
        _need(isinstance(value, list), value, where, "a list")
        for number, item in enumerate(value):
            check(item, form[0], f"{where}[{number}]")
    elif isinstance(form, tuple):
        _need(isinstance(value, tuple) and len(value) == len(form), value, where,
              f"a tuple of {len(form)}")
        for number, (item, part) in enumerate(zip(value, form)):
            check(item, part, f"{where}[{number}]")
    elif isinstance(form, dict):
        _check_dict(value, form, where)
    else:
        is_one = isinstance(value, str | None) and value in form
        _need(is_one, value, where, f"one of {', '.join(sorted(map(str, form)))}")


def _is_of(value, kind) -> bool:
    if isinstance(value, bool):  # to Python it is an int
        return any(one is not int and issubclass(bool, one) for one in get_args(kind) or (kind,))
    return isinstance(value, kind)


def _check_dict(value, form: dict, where: str) -> None:
    _need(isinstance(value, dict), value, where, "a dictionary")
    kind = next(iter(form))
    if isinstance(kind, type):
        for key in value:
            check(key, kind, f"a key of {where}")
    else:
        _need(value.keys() == form.keys(), list(value), where, f"the entries {', '.join(form)}")
    for key, item in value.items():
        check(item, form.get(key, form.get(kind)), f"{where}.{key}")


def _need(holds: bool, value, where: str, expected: str) -> None:
    if not holds:
        raise ValueError(f"{where} is {value!r:.{_SHOWN}}, expected {expected}")
