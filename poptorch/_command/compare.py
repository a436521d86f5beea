"""``poptorch compare``."""

import dataclasses

import torch

from poptorch._command import printed
from poptorch._command.given import model_file
from poptorch.errors import Error
from poptorch.options import Options
from poptorch.testing._compare import compare

SUMMARY = "compare a model with PyTorch, operation by operation"
EXAMPLES = ("poptorch compare net.py:Net --shape 8,64",
            "poptorch compare net.py:Net --shape 8,64 --training --steps 3 --json")
STATUS = ("0 if all is equal, 2 if something differs or for a wrong command line, 1 after an "
          "error.")


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("model", help="file.py:Name of a class, function or module")
    parser.add_argument("--shape", action="append", default=[],
                        help="shape of an argument, once for each: 8,16 (random floats) or "
                        "8:int10 (random whole numbers below 10). Default: the variable `inputs` "
                        "of the file, which is a tuple of the arguments or a function that "
                        "returns one")
    parser.add_argument("--training", action="store_true",
                        help="train; the last result is the loss")
    parser.add_argument("--steps", type=int, default=1, help="number of steps; default: 1")
    parser.add_argument("--options", help="a file that Options.loadFromFile reads")
    printed.add_json(parser)


def run(arguments) -> int:
    """Prints what of a model differs from PyTorch; 2 if anything does, else 0."""
    module, model = model_file.read(arguments.model, "compare")
    inputs = tuple(map(_drawn, arguments.shape)) or model_file.inputs(
        module, "compare", " Pass the shapes of the arguments with --shape.")
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


def _drawn(text: str) -> torch.Tensor:
    sizes, _, kind = text.partition(":")
    try:
        shape = [int(size) for size in sizes.split(",") if size]
        if not kind:
            return torch.randn(shape)
        if kind.startswith("int"):
            return torch.randint(0, int(kind.removeprefix("int")), shape)
    except (ValueError, RuntimeError):
        pass
    raise Error(f"[compare] expected a shape like 8,3,32,32 or 8,20:int100, got {text!r}. Sizes "
                f"are separated by commas.")
