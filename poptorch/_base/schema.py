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
    problem = _problem(value, form)
    if problem is not None:
        before, behind, found, expected = problem
        raise ValueError(f"{before}{where}{behind} is {found!r:.{_SHOWN}}, expected {expected}")


def _problem(value, form) -> tuple | None:
    """What does not have its form: the words before and behind the name of the whole value, the
    part, and what was expected. Names are put together only for a part that is wrong."""
    if isinstance(form, type):
        if type(value) is form or _is_of(value, form):
            return None
        return "", "", value, form.__name__
    if isinstance(form, types.UnionType):
        return None if _is_of(value, form) else ("", "", value, str(form))
    if isinstance(form, list):
        if not isinstance(value, list):
            return "", "", value, "a list"
        return _problem_within((number, item, form[0]) for number, item in enumerate(value))
    if isinstance(form, tuple):
        if not isinstance(value, tuple) or len(value) != len(form):
            return "", "", value, f"a tuple of {len(form)}"
        return _problem_within((number, *pair) for number, pair in enumerate(zip(value, form)))
    if isinstance(form, dict):
        return _problem_of_dict(value, form)
    if isinstance(value, str | None) and value in form:
        return None
    return "", "", value, f"one of {', '.join(sorted(map(str, form)))}"


def _problem_within(parts) -> tuple | None:
    for number, item, form in parts:
        if (problem := _problem(item, form)) is not None:
            return problem[0], f"[{number}]{problem[1]}", *problem[2:]
    return None


def _is_of(value, kind) -> bool:
    if isinstance(value, bool):  # to Python it is an int
        return any(one is not int and issubclass(bool, one) for one in get_args(kind) or (kind,))
    return isinstance(value, kind)


def _problem_of_dict(value, form: dict) -> tuple | None:
    if not isinstance(value, dict):
        return "", "", value, "a dictionary"
    kind = next(iter(form))
    if isinstance(kind, type):
        for key in value:
            if (problem := _problem(key, kind)) is not None:
                return "a key of ", *problem[1:]
    elif value.keys() != form.keys():
        return "", "", list(value), f"the entries {', '.join(form)}"
    for key, item in value.items():
        if (problem := _problem(item, form.get(key, form.get(kind)))) is not None:
            return problem[0], f".{key}{problem[1]}", *problem[2:]
    return None
