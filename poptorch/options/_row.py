"""An option: its row, and the setter and the documentation that are made from it."""

import enum
import functools
import inspect
import textwrap
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from poptorch._base.checks import Check

_Setter = TypeVar("_Setter", bound=Callable)
_RETURNS = "Returns:\n    This object, so that calls can be chained."


@dataclass(frozen=True, eq=False)
class Row:
    """One option: the one place of all facts about it.

    A ``check`` of None takes any value. ``doc`` is one line, by default the first of the docstring
    of ``setter``, the public method. ``later`` is the key in ``LATER`` of the work that gives it
    its effect; ``deprecated`` says what to do instead. ``backend`` is its name in ``_Popart``,
    ``step`` a field of ``StepSpec``, ``compiler`` an option of ``_C.compile``. A compiled program
    does not depend on an option that ``is_run_time``: of the device, of logging, or of what the
    host does. ``default_text`` is for the reference page, ``example`` for the docstring (None: the
    other bool).
    """

    name: str
    default: Any
    check: Check | None
    doc: str = ""
    setter: str = ""
    later: str = ""
    deprecated: str = ""
    backend: str = ""
    step: str = ""
    compiler: str = ""
    is_run_time: bool = False
    default_text: str = ""
    example: Any = None


def row(name: str, default: Any, check: Check | None,
        **facts: Any) -> Callable[[_Setter], _Setter]:
    """Declares an option, a :class:`Row`, that the decorated method sets by its own body."""
    def declare(setter: _Setter) -> _Setter:
        if "deprecated" in facts:
            argument = setter.__code__.co_varnames[1]
            setter.__doc__ = (f"Deprecated, without effect: {facts['deprecated']}.\n\n"
                              f"Args:\n    {argument}: kept for reading.")
        summary = " ".join((setter.__doc__ or "").partition("\n\n")[0].split())
        made = Row(name, default, check, setter=setter.__name__, **{"doc": summary, **facts})
        setter._rows = (made, *getattr(setter, "_rows", ()))
        return setter

    return declare


def option(name: str, default: Any, check: Check,
           **facts: Any) -> Callable[[_Setter], _Setter]:
    """Declares an option and makes its setter of the decorated method, which has no body.

    The method gives the setter's signature and docstring. Several of these decorators on one
    method declare an option for each of its arguments, in order.
    """
    def declare(setter: _Setter) -> _Setter:
        setter._has_no_body = True
        return row(name, default, check, **facts)(setter)

    return declare


def finish(kind: type, part_of: str) -> Iterator[Row]:
    """Makes the setters of a class, completes their docstrings, and yields the class's own rows.

    ``part_of`` is the public class that the class is a part of, if there is one.
    """
    shown_as = part_of or kind.__name__.removeprefix("_")
    for name, member in list(vars(kind).items()):
        if isinstance(member, Row):
            yield member
        if not inspect.isfunction(member) or name.startswith("_"):
            continue
        if part_of:  # programs look setters up by their qualified name
            member.__qualname__ = f"{part_of}.{name}"
        rows = vars(member).pop("_rows", ())
        if not rows:
            continue
        arguments = dict(list(inspect.signature(member).parameters.items())[1:])
        if member.__doc__:
            member.__doc__ = _docstring(kind, shown_as, member.__doc__, rows, arguments)
        if vars(member).pop("_has_no_body", False):
            setattr(kind, name, _setter(member, rows, arguments))
        yield from rows


def _setter(declared: Callable, rows: tuple[Row, ...], arguments: dict) -> Callable:
    defaults = {name: argument.default for name, argument in arguments.items()}

    @functools.wraps(declared)
    def setter(self, *args, **kwargs):
        declared(self, *args, **kwargs)  # refuses wrong arguments in Python's own words
        values = {**defaults, **dict(zip(defaults, args)), **kwargs}
        if len(rows) > 1:
            self.checkIsFrozen(rows[0].setter)
            for one, argument in zip(rows, values):
                one.check(values[argument], f"{self._PREFIX}{one.setter} {argument}")
        for one, value in zip(rows, values.values()):
            self._set(one.name, value)
            if one.deprecated:
                warnings.warn(f"[{self._PREFIX}{one.setter}] has no effect and will be removed: "
                              f"{one.deprecated}.", DeprecationWarning, stacklevel=2)
        return self

    return setter


def _docstring(kind: type, shown_as: str, text: str, rows: tuple[Row, ...],
               arguments: dict[str, inspect.Parameter]) -> str:
    """A setter's docstring with the sections that it leaves to its rows."""
    text, _, example = inspect.cleandoc(text).partition("\n\nExample:\n")
    text, _, raises = text.partition("\n\nRaises:\n")
    if not raises:
        raises = "\n".join(map(_raises, rows, arguments))
    if not example and len(rows) == 1 and not rows[0].deprecated:
        example = _example(kind, shown_as, rows[0], *arguments.values())
    parts = [text, _RETURNS, f"Raises:\n{raises}" if raises else "",
             f"Example:\n{example}" if example else ""]
    return "\n\n".join(filter(None, parts))


def _raises(one: Row, argument: str) -> str:
    errors = ", ".join(error.__name__ for error in one.check.errors)
    return "    " + _wrapped(f"{errors}: ``{argument}`` is not {one.check.text}.", "        ")


def _example(kind: type, shown_as: str, one: Row, argument: inspect.Parameter) -> str:
    value = not one.default if one.example is None else one.example
    options = "poptorch.TensorLocationSettings()." if kind._PREFIX.startswith(shown_as) else \
        f"poptorch.Options().{kind._PREFIX}"
    given = "" if value == argument.default else \
        f"poptorch.{type(value).__name__}.{value.name}" if isinstance(value, enum.Enum) else \
        f"poptorch.{value!r}" if type(value).__module__.startswith("poptorch") else repr(value)
    result = f"{shown_as}({one.name}={shown(one.check(value, one.setter))})"
    return (f"    >>> import poptorch\n    >>> {options}{one.setter}({given})\n    "
            + _wrapped(result, "     "))


def _wrapped(text: str, indent: str) -> str:
    # Most texts fit, and textwrap is slow: this runs for each option in each import.
    return text if len(text) < 92 else f"\n{indent}".join(textwrap.wrap(text, 90))


def shown(value: Any) -> str:
    """A value as options print it."""
    return value.name if isinstance(value, enum.Enum) else repr(value)
