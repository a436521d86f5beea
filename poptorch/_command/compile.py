"""``poptorch compile``."""

import time
from pathlib import Path

import torch

from poptorch._command import printed
from poptorch._command.given import model_arguments, outputs, weights
from poptorch.errors import Error

LOSSES = ("BCELoss", "BCEWithLogitsLoss", "CrossEntropyLoss", "HuberLoss", "KLDivLoss", "L1Loss",
          "MSELoss", "NLLLoss", "SmoothL1Loss")
SUMMARY = "compile a model and write it to a file"
EXAMPLES = ("poptorch compile net.py:Net --input f32[16,64] -o net.poptorch",
            "poptorch compile net.py:Plain --input f32[16,64] --input i64[16] \\\n"
            "      --optimizer adamw --loss CrossEntropyLoss -o train.poptorch",
            "poptorch compile net.py:Net --weights net.safetensors -o net.poptorch --json")


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    model_arguments.add(parser)
    model_arguments.add_optimizer(parser)
    parser.add_argument("--learning-rate", type=float, default=0.01, metavar="NUMBER",
                        help="of the optimizer; default: 0.01")
    parser.add_argument("--loss", choices=LOSSES, metavar="CLASS",
                        help="class of torch.nn that computes the loss from the model's result and "
                        f"the last --input: {', '.join(LOSSES)}. Without it, forward returns its "
                        "loss")
    parser.add_argument("--weights", metavar="FILE",
                        help="a .safetensors file of weights; default: those that the file of the "
                        "model makes, with the seed 0")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the file to write")
    printed.add_json(parser)


def run(arguments) -> None:
    """Compiles a model, writes the file and prints its size."""
    if arguments.loss is not None and arguments.optimizer is None:
        raise Error("[compile] --loss is for training, and there is no --optimizer. Add one.")
    outputs.check(arguments.output, "compile")
    given = model_arguments.Model(arguments, "compile", arguments.learning_rate)
    if arguments.weights is not None:
        weights.load(given.model, arguments.weights, "compile")
    loss = arguments.loss and getattr(torch.nn, arguments.loss)()
    export(given.executor(loss), given.inputs, {}, arguments)


def export(executor, args: tuple, kwargs: dict, arguments) -> None:
    """Compiles, writes the file that ``arguments`` name and prints what was written."""
    begin = time.perf_counter()
    path = executor.compileAndExport(arguments.output, *args, **kwargs)
    found = {"file": path, "bytes": Path(path).stat().st_size,
             "training": executor.training, "ipus": executor._executable.ipus,
             "seconds": round(time.perf_counter() - begin, 3)}
    if arguments.json:
        printed.as_json(found)
    else:
        kind = "training" if executor.training else "inference"
        print(f"wrote {path}: {kind}, {found['ipus']} IPU{'s' * (found['ipus'] != 1)}, "
              f"{found['bytes']:,} bytes, {found['seconds']:.1f} s")
