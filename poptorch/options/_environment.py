"""Options from the environment variable POPTORCH_DEFAULT_OPTIONS."""

import os

from poptorch import enums
from poptorch._base.checks import near_names
from poptorch._base.environment import json_object

VARIABLE = "POPTORCH_DEFAULT_OPTIONS"


def apply_defaults(options) -> None:
    """Applies the settings of POPTORCH_DEFAULT_OPTIONS, if there are any.

    Args:
        options: a new options object.

    Raises:
        ValueError: The text is no JSON object, or an entry cannot be applied.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return
    settings = json_object(VARIABLE, text, '{"deviceIterations": 4}')
    for name, value in settings.items():
        arguments = value if isinstance(value, list) else [value]
        setter = _setter(options, name)
        try:
            setter(*map(_converted, arguments))
        except (TypeError, ValueError, AssertionError) as error:
            raise ValueError(f"[{VARIABLE}] {name}: {error}") from error


def _setter(options, name: str):
    *groups, method = name.split(".")
    target = options
    for group in groups:
        if group not in options._groups:
            raise ValueError(f"[{VARIABLE}] {name}: there is no group {group!r}."
                             f"{near_names(group, options._groups)}")
        target = options._groups[group]
    if method not in target._setters():
        raise ValueError(f"[{VARIABLE}] {name}: there is no such option."
                         f"{near_names(method, target._setters())}")
    try:
        target._check_sets(method)
    except AttributeError as error:
        raise ValueError(f"[{VARIABLE}] {name}: {error}") from None
    return getattr(target, method)


def _converted(value):
    """The enum member for a text such as ``"OutputMode.All"``; other values as they are."""
    if isinstance(value, str) and value.count(".") == 1:
        kind, _, member = value.removeprefix("poptorch.").partition(".")
        members = getattr(getattr(enums, kind, None), "__members__", {})
        return members.get(member, value)
    return value
