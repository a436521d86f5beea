"""``poptorch compare``."""

import dataclasses

from poptorch._command import printed
from poptorch._command.given import model_file, typed_inputs
from poptorch.options import Options
from poptorch.testing._compare import compare

SUMMARY = "compare a model with PyTorch, operation by operation"
EXAMPLES = ("poptorch compare net.py:Net --input f32[8,64]",
            "poptorch compare net.py:Net --input f32[8,64] --training --steps 3 --json")
STATUS = ("0 if all is equal, 2 if something differs or for a wrong command line, 1 after an "
          "error.")


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("model", help="file.py:Name of a class, function or module")
    parser.add_argument("--input", action="append", default=[], metavar="TYPE[SHAPE][:LIMIT]",
                        help="an argument of forward with random values, such as f32[8,64], or "
                        "i64[8]:10 for whole numbers below 10 (default: below 2). Repeat it for "
                        "each argument. Default: the variable `inputs` of the file, which is a "
                        "tuple of the arguments or a function that returns one")
    parser.add_argument("--training", action="store_true",
                        help="train; the last result is the loss")
    parser.add_argument("--steps", type=int, default=1, help="number of steps; default: 1")
    parser.add_argument("--options", help="a file that Options.loadFromFile reads")
    printed.add_json(parser)


def run(arguments) -> int:
    """Prints what of a model differs from PyTorch; 2 if anything does, else 0."""
    module, model = model_file.read(arguments.model, "compare")
    inputs = typed_inputs.inputs(arguments.input, module, "compare", typed_inputs.drawn)
    options = Options()
    if arguments.options is not None:
        options.loadFromFile(arguments.options)
    found = compare(model, *inputs, steps=arguments.steps, training=arguments.training,
                    options=options)
    if arguments.json:
        printed.as_json({"equal": bool(found), **dataclasses.asdict(found)})
    else:
        print(found)
    return 0 if found else 2
