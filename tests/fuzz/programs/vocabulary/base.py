"""The rows that lines of random programs are drawn from."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One kind of line.

    Attributes:
        family: rows of one family are drawn together more often.
        weight: how often it is drawn.
        function: takes a ``Draw``; adds lines to it, or raises ``Rejected``.
    """

    family: str
    weight: int
    function: Callable


ROWS: list[Row] = []


def row(family: str, weight: int = 4):
    """Enters a function as a row."""

    def register(function):
        ROWS.append(Row(family, weight, function))
        return function

    return register
