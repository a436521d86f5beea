"""Programs that once computed something wrong, each shrunk: one file a case.

A file holds ``PROGRAM``, as a failure prints it, and says in its first line what was wrong.
"""

import importlib
from pathlib import Path


def names() -> list[str]:
    """The names of all cases."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))


def load(name: str):
    """The program of a case."""
    return importlib.import_module(f"{__name__}.{name}").PROGRAM
