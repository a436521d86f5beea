"""``poptorch how``."""

from poptorch._command import printed
from poptorch._translate.call_routes import described

SUMMARY = "show how poptorch handles a function, layer or operator of torch"
EXAMPLES = ("poptorch how addcmul_", "poptorch how Conv2d --json")


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("name", help="such as dropout, Conv2d, addcmul_ or aten.add.Tensor")
    printed.add_json(parser)


def run(arguments) -> None:
    """Prints the steps and tables that handle a function or operation of torch."""
    text = described(arguments.name)
    if not arguments.json:
        print(text)
        return
    first, *lines = text.splitlines()
    printed.as_json({"name": arguments.name, "summary": first, "lines": lines})
