"""``poptorch analyze``."""

from poptorch._command import printed
from poptorch._command.given import model_arguments
from poptorch._estimate.analyze import analyze
from poptorch.errors import Error

SUMMARY = "list the native, opaque and refused operations of a model"
EXAMPLES = ("poptorch analyze net.py:Net --input f32[16,64]",
            "poptorch analyze net.py:Net --input f32[16,64] --optimizer adamw --json")
STATUS = ("0 if no operation is refused, 1 if one is or after an error, 2 for a wrong command "
          "line.")


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    model_arguments.add(parser)
    model_arguments.add_optimizer(parser)
    printed.add_json(parser)


def run(arguments) -> int:
    """Prints the operations of a model in a file; 1 if one is refused, else 0."""
    given = model_arguments.Model(arguments, "analyze")
    try:
        executor = given.executor()
    except ValueError as error:  # of options that only training takes
        raise Error(str(error)) from None
    found = analyze(executor, *given.inputs)
    print(found.to_json() if arguments.json else found)
    return 1 if found.refused else 0
