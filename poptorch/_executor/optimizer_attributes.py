"""Tells of attributes of an optimizer that the device does not know."""

from poptorch._logging import logger

# What torch's learning-rate schedulers write into groups and optimizers.
_SCHEDULERS = frozenset({"initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "step"})


class AttributeWatch:
    """Remembers the attributes of the first optimizer, and tells of others once.

    Args:
        relax: tell at level DEBUG instead of as a warning.
    """

    def __init__(self, relax: bool):
        self._tell = logger.debug if relax else logger.warning
        self._known: dict[str, set[str]] = {}

    def look(self, optimizer) -> None:
        """Looks at an optimizer and its groups."""
        self._compare("optimizer attribute", optimizer.__dict__)
        for number, group in enumerate(optimizer.param_groups):
            self._compare(f"group {number} attribute", group)

    def _compare(self, what: str, present: dict) -> None:
        known = self._known.get(what)
        if known is None:
            self._known[what] = set(present)
            return
        names = [name for name in present if name not in known]
        if names:
            known.update(names)
            told = [n for n in names if not n.startswith("_") and n not in _SCHEDULERS]
            if told:
                self._tell("Ignoring unexpected %s: %s. The update on the device does not know "
                           "it.", what, ", ".join(told))
