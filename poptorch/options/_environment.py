"""Options from the environment variable POPTORCH_DEFAULT_OPTIONS."""

import os

from poptorch import enums
from poptorch._base.environment import json_object

VARIABLE = "POPTORCH_DEFAULT_OPTIONS"


def apply_defaults(options) -> None:
    """Applies the settings of POPTORCH_DEFAULT_OPTIONS; a wrong one is a ValueError."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return
    settings = json_object(VARIABLE, text, '{"deviceIterations": 4}')
    for name, value in settings.items():
        arguments = value if isinstance(value, list) else [value]
        try:
            options._find_setter(name.split("."))(*map(_converted, arguments))
        except (TypeError, ValueError, AttributeError, AssertionError) as error:
            raise ValueError(f"[{VARIABLE}] {name}: {error}") from error


def _converted(value):
    """The enum member for a text such as ``"OutputMode.All"``; other values as they are."""
    if isinstance(value, str) and value.count(".") == 1:
        kind, _, member = value.removeprefix("poptorch.").partition(".")
        members = getattr(getattr(enums, kind, None), "__members__", {})
        return members.get(member, value)
    return value
