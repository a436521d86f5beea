"""The lines of random programs: families of rows, one file each."""

from tests.fuzz.programs.vocabulary import (  # noqa: F401  (they enter their rows)
    convolutions,
    custom_ops,
    directives,
    elementwise,
    extra_functions,
    indexing,
    integers,
    joining,
    layers,
    linear_algebra,
    loops,
    losses,
    norms,
    pools,
    products,
    reductions,
    selecting,
    shaping,
    special,
    transforms,
)
from tests.fuzz.programs.vocabulary.base import ROWS

__all__ = ["ROWS"]
