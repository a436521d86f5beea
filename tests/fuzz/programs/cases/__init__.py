"""Programs that once computed something wrong, each shrunk: one file a case, in folders by
subject.

A file holds ``PROGRAM``, as a failure prints it, and says in its first line what was wrong.
"""

import importlib
from pathlib import Path


def names() -> list[str]:
    """The names of all cases: ``norms.layer_norm_of_infinity``."""
    paths = Path(__file__).parent.glob("*/*.py")
    return sorted(f"{path.parent.name}.{path.stem}" for path in paths)


def load(name: str):
    """The program of a case."""
    return importlib.import_module(f"{__name__}.{name}").PROGRAM
