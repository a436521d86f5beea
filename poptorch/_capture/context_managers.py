"""Context managers of other packages that are entered around every capture."""

import contextlib

_registered: list[type] = []


def register(manager: type) -> None:
    """Has ``manager()`` entered before each capture and left after it."""
    if not isinstance(manager, type) or not hasattr(manager, "__enter__"):
        raise TypeError(f"[registerSubsitutionManager] expected a class of context managers, got "
                        f"{manager!r}.")
    if manager not in _registered:
        _registered.append(manager)


def entered() -> contextlib.ExitStack:
    """A context in which one manager of each registered class is entered, in that order."""
    with contextlib.ExitStack() as stack:
        for manager in _registered:
            stack.enter_context(manager())
        return stack.pop_all()
