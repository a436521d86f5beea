"""Numbers in attributes that ``forward`` itself counts on, and computes with."""

import torch

from poptorch._logging import logger

_NUMBERS = (int, float)


class Counters:
    """Notes the lines that read numbers in attributes of modules, and those that set them.

    A counter is set by a line that reads it, as ``self.count += 1`` does. Where no other line reads
    it, it is for the host alone.
    """

    def __init__(self):
        self._read: dict[tuple[int, str], set[tuple]] = {}
        self._counted: dict[tuple[int, str], set[tuple]] = {}

    def was_read(self, module: torch.nn.Module, name: str, value, frame) -> None:
        """Takes note that a line, that of ``frame``, read an attribute."""
        if type(value) in _NUMBERS:
            self._read.setdefault((id(module), name), set()).add(_line(frame))

    def was_set(self, module: torch.nn.Module, name: str, value, frame) -> None:
        """Takes note that a line sets an attribute."""
        key = id(module), name
        if type(value) in _NUMBERS and _line(frame) in self._read.get(key, ()):
            self._counted.setdefault(key, set()).add(_line(frame))

    def warn_of(self, module: torch.nn.Module, before: dict, now: dict, place_of) -> None:
        """Warns of the counters of a module that ``forward`` computes with.

        Args:
            module: the module.
            before, now: its attributes before and after ``forward``.
            place_of: the text of the place where an attribute was set.
        """
        for name, value in now.items():
            key, was = (id(module), name), before.get(name)
            if key in self._counted and type(was) in _NUMBERS and was != value \
                    and self._read[key] - self._counted[key]:
                place = place_of(name)
                logger.warning(
                    "[capture] forward counts with the attribute %s, from %s to %s, and reads it: "
                    "each call of the program has the numbers of the first one. Make it a buffer "
                    "(register_buffer) that forward changes in place, and use torch.where for "
                    "what depends on it.%s", name, was, value, f"\n  at {place}" if place else "")


def _line(frame) -> tuple:
    return frame.f_code, frame.f_lineno
