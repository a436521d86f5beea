"""``poptorch version``."""

import platform

import torch

from poptorch import _C
from poptorch._command import printed
from poptorch.version import __version__

SUMMARY = "print the versions of poptorch, torch and Python"
EXAMPLES = ("poptorch version", "poptorch version --json")


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    printed.add_json(parser)


def text() -> str:
    """What ``poptorch --version`` prints."""
    return f"poptorch {__version__}"


def run(arguments) -> None:
    """Prints the versions."""
    found = {"poptorch": __version__, "torch": str(torch.__version__),
             "python": platform.python_version(), "cpu_level": _C.isa()}
    if arguments.json:
        printed.as_json(found)
    else:
        printed.rows(list(found.items()))
