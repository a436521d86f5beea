"""What random programs are made of: families of rows, one file each."""

from tests.fuzz.programs.vocabulary import (  # noqa: F401  (they enter their rows)
    convolutions,
    elementwise,
    indexing,
    integers,
    joining,
    layers,
    losses,
    norms,
    own_functions,
    own,
    pools,
    products,
    reductions,
    selecting,
    shaping,
)
from tests.fuzz.programs.vocabulary.base import ROWS

__all__ = ["ROWS"]
