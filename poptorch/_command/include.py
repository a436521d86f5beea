"""``poptorch include``."""

from poptorch.ops.custom_op import include_path

SUMMARY = "print the folder of the C++ headers, for a compiler's -I"
EXAMPLES = ("poptorch include",)


def add_arguments(parser) -> None:
    """Adds the arguments of the command: none."""


def run(arguments) -> None:
    """Prints the folder of ``poptorch/custom_op.h``."""
    print(include_path())
