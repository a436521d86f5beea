"""``poptorch devices``."""

from poptorch._command import printed
from poptorch.errors import Error
from poptorch.ops import hardware_queries

SUMMARY = "list the devices of the IPU system and the processes that hold them"
EXAMPLES = ("poptorch devices", "POPTORCH_IPU_SYSTEM=c2 poptorch devices --json")


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    printed.add_json(parser)


def run(arguments) -> None:
    """Prints the devices."""
    try:
        found = hardware_queries.devices()
    except ValueError as error:  # of the environment variable
        raise Error(str(error)) from error
    if arguments.json:
        printed.as_json([row._asdict() | {"holder": row.holder and row.holder._asdict()}
                         for row in found])
    else:
        print(found)
