"""The arguments of ``python -m poptorch report`` and ``analyze``."""

import argparse

OPTIMIZERS = ("sgd", "adam", "adamw", "rmsprop", "lamb")
EXAMPLE = "python -m poptorch report net.py:Net --input f32[16,64] --options " \
          "device_iterations=4 -o report.html"
ANALYZE_EXAMPLE = "python -m poptorch analyze net.py:Net --input f32[16,64]"


def add(commands) -> argparse.ArgumentParser:
    """Adds the command to a parser's subparsers."""
    command = commands.add_parser(
        "report", help="say what a model costs on IPUs, without running it",
        epilog=f"Example: {EXAMPLE}")
    _add_model(command)
    command.add_argument("-o", "--output", metavar="FILE",
                         help="write a .html page or a .json file; without it, print text")
    command.add_argument("--compare", metavar="FILE.json",
                         help="a report to compare with: print what differs; on a page, show both")
    return command


def add_analyze(commands) -> argparse.ArgumentParser:
    """Adds the command ``analyze`` to a parser's subparsers."""
    command = commands.add_parser(
        "analyze", help="list the native, opaque and refused operations of a model",
        epilog=f"Example: {ANALYZE_EXAMPLE}. Exit status: 0 if no operation is refused, else 1.")
    _add_model(command)
    command.add_argument("--json", action="store_true", help="as JSON")
    return command


def _add_model(command) -> None:
    command.add_argument("model", help="file.py:Name of a class, function or module")
    command.add_argument("--input", action="append", default=[], metavar="TYPE[SHAPE]",
                         help="an argument of forward, with the batch of a whole step, such as "
                         "f32[8,3,224,224]; without it, the file has `inputs`: the arguments, or "
                         "a function that makes them")
    command.add_argument("--options", nargs="+", default=[], metavar="OPTION",
                         help="NAME=VALUE by the names of Options.toDict(), values as JSON, such "
                         "as ipu_target=bow gradient_accumulation=8; and file.py:name of an "
                         "Options object. The settings change that object, or else the "
                         "`options` of the model's file, if it has some")
    command.add_argument("--optimizer", choices=OPTIMIZERS, help="train with this optimizer; "
                         "without it, inference is assumed")
