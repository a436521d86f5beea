"""Where the files of rules collect them."""

from collections.abc import Callable

RULES: dict[str, Callable] = {}


def register(*names: str) -> Callable:
    """A decorator: enters a rule under each of the ATen ``names``."""
    def enter(function):
        for name in names:
            assert name not in RULES, f"two rules for {name}"
            RULES[name] = function
        return function
    return enter
