"""Random generators of Python and NumPy, and iterators, that ``forward`` takes something from."""

import contextlib
import itertools
import pickle
import random
from collections.abc import Iterator

import numpy

from poptorch._base.logging import logger

_GENERATORS = (random.Random, numpy.random.Generator, numpy.random.RandomState,
               numpy.random.BitGenerator)
_OF_PYTHON = frozenset({"builtins", itertools.__name__})


class Draws:
    """What gives another value each time it is asked, with the state that it had when it was met.

    ``forward`` runs once: of each call of the program the values are those of that time.
    """

    def __init__(self):
        # By identity: the object, the name, and the state; None: the state has changed or is not
        # known.
        self._met: dict[int, tuple[object, str, bytes | None]] = {}

    def of_process(self) -> "Draws":
        """Meets the generators that functions of the modules ``random`` and ``numpy.random`` use.
        """
        self.meet(random.random, "random")
        self.meet(numpy.random.random, "numpy.random")
        return self

    def meet(self, value, name: str) -> None:
        """Takes note of an object that ``forward`` can use from now on, or of a method of one."""
        owner = getattr(value, "__self__", None) if callable(value) else None
        value = owner if isinstance(owner, (*_GENERATORS, Iterator)) else value
        # Of other iterators than Python's own, attributes are compared.
        is_iterator = type(value).__module__ in _OF_PYTHON and isinstance(value, Iterator)
        if id(value) not in self._met and (is_iterator or isinstance(value, _GENERATORS)):
            self._met[id(value)] = value, name, _state(value)

    @contextlib.contextmanager
    def without(self):
        """While it is entered, something else than ``forward`` draws."""
        used = {key for key, (value, _, before) in self._met.items() if _state(value) != before}
        yield
        for key, (value, name, _) in self._met.items():
            self._met[key] = value, name, None if key in used else _state(value)

    def warn(self) -> None:
        """Warns of generators that were used, and of iterators."""
        for value, name, before in self._met.values():
            if not isinstance(value, _GENERATORS):
                logger.warning(
                    "[capture] forward reads %s, a %s. Python code runs only while forward is "
                    "traced, so every call sees the same items. Take them outside of forward and "
                    "pass them as arguments.", name, type(value).__name__)
            elif before is None or _state(value) != before:
                logger.warning(
                    "[capture] forward uses random numbers from %s. Python runs only while forward "
                    "is traced, so every call sees the same numbers. Draw with torch (torch.rand, "
                    "torch.nn.functional.dropout), which every call does again, or outside of "
                    "forward, and pass the numbers as tensors.", name)


def _state(value) -> bytes | None:
    has_state = isinstance(value, _GENERATORS) and not isinstance(value, random.SystemRandom)
    return pickle.dumps(value) if has_state else None
