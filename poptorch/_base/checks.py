"""What values an option takes, and the errors for all others."""

import difflib
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch


def at_least(minimum: int, value, option: str) -> int:
    """Returns ``value`` when it is an int of at least ``minimum``; raises a TypeError or ValueError
    otherwise."""
    return Int(minimum)(value, option)


def one_of(kind, value, option: str):
    """Returns ``value`` when it is a member of the enum ``kind``; else a TypeError lists the
    members."""
    return Member(kind)(value, option)


def check_module(model, where: str) -> None:
    """Raises a TypeError that names ``where`` if ``model`` is not a module."""
    if isinstance(model, torch.nn.Module):
        return
    kind, hint = type(model).__name__, "Pass an object of the module's class"
    if isinstance(model, type):
        kind, hint = f"the class {model.__name__}", f"Pass an object: {model.__name__}(...)"
    raise TypeError(f"[{where}] model must be a torch.nn.Module, got {kind}. {hint}.")


def public_names(names: Iterable[str]) -> list[str]:
    """What ``dir()`` shows of an object with many private names: the others, and special ones."""
    return sorted({name for name in names if not name.startswith("_") or name.endswith("__")})


def near_names(name: str, names: Iterable[str]) -> str:
    """`` Did you mean a or b?`` for the names that look like ``name``; empty if none does."""
    return near_texts(name, dict(zip(names, names)))


def near_texts(name: str, texts: dict[str, str]) -> str:
    """As :func:`near_names`, with texts for the names."""
    if name in texts:
        return f" Did you mean {texts[name]}?"
    by_form: dict[str, list[str]] = {}
    for known in texts:
        by_form.setdefault(known.lower().replace("_", ""), []).append(known)
    near = difflib.get_close_matches(name.lower().replace("_", ""), by_form, n=3, cutoff=0.7)
    found = [texts[known] for form in near for known in by_form[form]]
    return f" Did you mean {' or '.join(found)}?" if found else ""


class Check:
    """Returns the value as it is kept, or raises with the values that the option takes.

    Attributes:
        text: the values that it takes, for error messages and the reference page.
        errors: what it raises for others.
        kinds: the classes of these values; a bool counts only where it is named.
    """

    text = ""
    errors: tuple[type[Exception], ...] = (TypeError, ValueError)
    kinds: tuple[type, ...] = ()

    def __call__(self, value, option: str):
        """See the class."""
        is_bool = isinstance(value, bool) and bool not in self.kinds
        if is_bool or not isinstance(value, self.kinds):
            raise self.wrong_type(value, option)
        if not self.allows(value):
            raise self.out_of_range(value, option)
        return self.kept(value)

    def allows(self, value) -> bool:
        """Whether a value of the right type is allowed."""
        return True

    def kept(self, value):
        """The form in which a value is kept."""
        return value

    def load(self, value):
        """The value for a result of :func:`plain`; others are returned unchanged."""
        return value

    def wrong_type(self, value, option: str) -> TypeError:
        """The error for a value of another type."""
        return TypeError(f"[{option}] expected {self.text}, got {type(value).__name__} "
                         f"{value!r}.")

    def out_of_range(self, value, option: str) -> ValueError:
        """The error for a value of the right type that is not allowed."""
        return ValueError(f"[{option}] expected {self.text}, got {value!r}.")


@dataclass(frozen=True)
class Int(Check):
    """An int within limits; a bool is none."""

    minimum: int
    maximum: int | None = None
    kinds = (int,)

    @property
    def text(self) -> str:
        """``an int of at least 1``, ``an int from 1 to 64``."""
        if self.maximum is None:
            return f"an int of at least {self.minimum}"
        return f"an int from {self.minimum} to {self.maximum}"

    def allows(self, value) -> bool:
        return self.minimum <= value and (self.maximum is None or value <= self.maximum)


# Of steps and replicas: the core counts them in 32 bits.
COUNT = Int(1, 2**31 - 1)


@dataclass(frozen=True)
class Number(Check):
    """A finite number above 0, or of at least 0; a bool is none."""

    has_zero: bool = False
    kinds = (int, float)

    @property
    def text(self) -> str:
        """``a finite number above 0``, ``a finite number of at least 0``."""
        return f"a finite number {'of at least' if self.has_zero else 'above'} 0"

    def allows(self, value) -> bool:
        return 0 <= value < math.inf and (value != 0 or self.has_zero)

    def kept(self, value) -> float:
        return float(value)


class Bool(Check):
    """True or False."""

    text = "True or False"
    errors = (TypeError,)
    kinds = (bool,)


class Nothing(Check):
    """None alone: an option that exists to be read."""

    text = "None"
    errors = (ValueError,)
    kinds = (object,)

    def allows(self, value) -> bool:
        return value is None


class Text(Check):
    """A str that is not empty."""

    text = "a str that is not empty"
    kinds = (str,)

    def allows(self, value) -> bool:
        return bool(value)


@dataclass(frozen=True)
class Path(Check):
    """A path, kept as an absolute one: the program may change its folder later. Or as it is given,
    where programs read it back."""

    is_as_given: bool = False
    text = "a path (str or os.PathLike)"
    errors = (TypeError,)
    kinds = (str, os.PathLike)

    def kept(self, value) -> str:
        path = os.fspath(value)
        return path if self.is_as_given else os.path.abspath(path)


class Texts(Check):
    """A list or tuple of str, kept as a list."""

    text = "a list of str"
    errors = (TypeError,)

    def __call__(self, value, option: str) -> list[str]:
        if not isinstance(value, (list, tuple)):
            raise self.wrong_type(value, option)
        for item in value:
            if not isinstance(item, str):
                raise TypeError(f"[{option}] expected {self.text}, got "
                                f"{type(item).__name__} {item!r} in it.")
        return list(value)

    def load(self, value):
        """A list for a set, as programs give them to ``_Popart.set``."""
        return sorted(value) if isinstance(value, (set, frozenset)) else value


@dataclass(frozen=True)
class Member(Check):
    """A member of an enum, but for some."""

    kind: type
    without: tuple = ()

    @property
    def text(self) -> str:
        """``one of Kind.A, Kind.B``."""
        names = [f"{self.kind.__name__}.{m.name}" for m in self.kind if m not in self.without]
        return f"one of {', '.join(names)}"

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """A ValueError too where the check leaves members out."""
        return (TypeError, ValueError) if self.without else (TypeError,)

    def __call__(self, value, option: str):
        if not isinstance(value, self.kind):
            raise TypeError(f"[{option}] expected {self.text}, got {value!r}.")
        if value in self.without:
            raise self.out_of_range(value, option)
        return value

    def load(self, value):
        """The member of that value."""
        return self.kind(value)


@dataclass(frozen=True)
class Choice(Check):
    """One of a few values."""

    values: tuple

    @property
    def text(self) -> str:
        """``one of 1, 2, 21``."""
        return f"one of {', '.join(map(str, self.values))}"

    @property
    def kinds(self) -> tuple[type, ...]:
        """The class of the values."""
        return (type(self.values[0]),)

    def allows(self, value) -> bool:
        return value in self.values


@dataclass(frozen=True)
class Dtype(Choice):
    """One of a few torch dtypes."""

    def load(self, value):
        """The dtype of that name."""
        return getattr(torch, value.removeprefix("torch.")) if isinstance(value, str) else value


@dataclass(frozen=True)
class OrNone(Check):
    """What another check takes, or None."""

    inner: Check

    @property
    def text(self) -> str:
        """The other's text, ``or None``."""
        return f"{self.inner.text}, or None"

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """Those of the other."""
        return self.inner.errors

    def __call__(self, value, option: str):
        if value is None:
            return None
        try:
            return self.inner(value, option)
        except (TypeError, ValueError) as error:
            words = str(error).replace(self.inner.text, self.text)
            raise type(error)(words) from None

    def load(self, value):
        """The other's, None for None."""
        return None if value is None else self.inner.load(value)


class Proportions(Check):
    """A dict from ``"IPU0"`` or 0 to a share of the memory, kept with ints as keys."""

    text = 'a dict such as {"IPU0": 0.5} with numbers from 0 to 1'

    kinds = (dict,)

    def allows(self, value) -> bool:
        return all(isinstance(key, int | str) and str(key).removeprefix("IPU").isdecimal()
                   and str(key).isascii() for key in value) and all(
            isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share <= 1
            for share in value.values())

    def kept(self, value) -> dict[int, float]:
        return {int(str(key).removeprefix("IPU")): float(share) for key, share in value.items()}

    def load(self, value):
        """The dict with ints as keys again: JSON makes strings of them."""
        return {int(key): share for key, share in value.items()}
