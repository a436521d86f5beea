"""The console tool: ``python -m poptorch opt`` runs passes, ``... ops`` lists the ops, ``... how``
shows what is done with a call of torch, ``... compare`` compares a model with PyTorch,
``... report`` says what a model costs on IPUs, ``... analyze`` lists the operations of a model and
what is done with each, ``... devices`` lists the devices of the IPU system, ``... cache`` shows and
removes compiled programs of a cache, and ``... include`` prints the folder of the C++ header."""

import argparse
import json
import re
import sys
from pathlib import Path

import poptorch
from poptorch import _C
from poptorch._command import cache, report_parser
from poptorch.errors import Error
from poptorch.ops.custom_op import include_path
from poptorch.version import __version__


def read_module(path):
    """The module of an IR file; large constants are in the ``.safetensors`` file next to it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Error(f"[opt] {path} is not IR text. Give a .ir file, such as PoplarExecutor.ir() "
                    f"gives; of a saved program, load it with poptorch.load() and write its "
                    f"ir().") from None
    if text.strip() == "// (unchanged)":
        raise Error(f"[opt] {path} has no text, as its pass changed nothing. Give the file of the "
                    f"pass or step before it.")
    step = Path(path).with_name(Path(path).name.partition(".")[0])  # a pass has those of its step
    files = [file.with_suffix(".safetensors") for file in (Path(path), step)]
    data = next(filter(Path.exists, files), None)
    constants = None if data is None else _C.load_constants(str(data))
    if data is None and (found := re.search(r" = constant \{.*hash=", text)):
        line = text.count("\n", 0, found.start()) + 1
        raise Error(f"[opt] {path} has constants of more than 16 elements (line {line}), and "
                    f"{files[0]}, which has their values, does not exist. Dump the steps with "
                    f"POPTORCH_DUMP_IR=<folder>, which writes both files.")
    return _C.parse(text, constants)


def opt(arguments):
    """Prints the IR text of a file after some passes."""
    module = read_module(arguments.file)
    passes = arguments.passes.split(",") if arguments.passes else _C.pipeline()
    for name, changed, seconds in _C.run_passes(module, passes):
        if arguments.verbose:
            note = "" if changed else " (unchanged)"
            print(f"{name}: {seconds * 1e3:.2f} ms{note}", file=sys.stderr)
    print(module.text(), end="")


def signature(row):
    """One line: ``name(operands){attributes} -> results``."""
    attrs = ", ".join(
        name if required else f"{name}={default}" for name, default, required, _ in row["attrs"]
    )
    results = ", ".join(row["results"]) or "nothing"
    return f"{row['name']}({', '.join(row['operands'])}){{{attrs}}} -> {results}"


def ops(arguments):
    """Prints the rows of the op table, or one of them in full."""
    if arguments.name is None:
        for row in _C.op_table():
            print(signature(row))
        return
    row = _C.op_row(arguments.name)
    print(signature(row))
    print(f"  {row['doc']}")
    print(f"  ATen: {', '.join(row['aten']) or 'none'}")
    print(f"  strided operands: {row['strided']}; effects: {row['effects']}; "
          f"random: {row['random']}; kernel: {'yes' if row['has_kernel'] else 'none'}")


def how(arguments):
    """Prints the steps and tables that handle a function or operation of torch."""
    from poptorch._translate.call_routes import described  # heavy parts of torch

    print(described(arguments.name))


def compare(arguments):
    """Prints what of a model differs from PyTorch; the exit status is 2 if anything does."""
    from poptorch._command.compare import compare_file  # heavy parts of torch

    found = compare_file(arguments.model, arguments.shape, arguments.training, arguments.steps,
                         arguments.options)
    print(found)
    return 0 if found else 2


def report(arguments):
    """Prints or writes what a model costs on IPUs."""
    from poptorch._command.report import report_file  # heavy parts of torch

    report_file(arguments)


def analyze(arguments):
    """Lists the operations of a model; the exit status is 1 if one is refused."""
    from poptorch._command.analyze import analyze_file  # heavy parts of torch

    return analyze_file(arguments)


def devices(arguments):
    """Prints the devices of the IPU system and who holds them."""
    try:
        found = poptorch.devices()
    except ValueError as error:  # of the environment variable
        raise Error(str(error)) from error
    print(json.dumps([row._asdict() | {"holder": row.holder and row.holder._asdict()}
                      for row in found], indent=2) if arguments.json else found)


def include(arguments):
    """Prints the folder of ``poptorch/custom_op.h``, for a compiler's ``-I``."""
    print(include_path())


def parser():
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m poptorch", description=__doc__)
    top.add_argument("--version", action="version", version=f"poptorch {__version__}")
    commands = top.add_subparsers(required=True, metavar="command")
    opt_command = commands.add_parser("opt", help="run passes on IR text")
    names = ", ".join(name for name, _ in _C.passes())
    opt_command.add_argument("--passes", help=f"comma-separated, of {names}; default: the pipeline")
    opt_command.add_argument("--verbose", action="store_true", help="time of each pass to stderr")
    opt_command.add_argument("file", help="a .ir file")
    opt_command.set_defaults(run=opt)
    ops_command = commands.add_parser("ops", help="list the ops of the IR")
    ops_command.add_argument("name", nargs="?", help="show this one in full")
    ops_command.set_defaults(run=ops)
    how_command = commands.add_parser("how", help="show what is done with a call of torch",
                                      epilog="Example: python -m poptorch how addcmul_")
    how_command.add_argument("name", help="such as dropout, addcmul_, aten.add.Tensor")
    how_command.set_defaults(run=how)
    compare_command = commands.add_parser(
        "compare", help="compare a model with PyTorch, operation by operation",
        epilog="Example: python -m poptorch compare net.py:Net --shape 8,16 --shape 8:int10 "
               "--training --steps 3. Without --shape, the file has `inputs`: the arguments, or a "
               "function that makes them. Exit status: 0 if all is equal, 2 if something differs.")
    compare_command.add_argument("model", help="file.py:Name of a class, function or module")
    compare_command.add_argument("--shape", action="append", default=[],
                                 help="of an argument: 8,16 (floats) or 8:int10 (whole numbers)")
    compare_command.add_argument("--training", action="store_true", help="train; the last result "
                                 "is the loss")
    compare_command.add_argument("--steps", type=int, default=1, help="how many; default: 1")
    compare_command.add_argument("--options", help="a file as Options.loadFromFile takes it")
    compare_command.set_defaults(run=compare)
    report_parser.add(commands).set_defaults(run=report)
    report_parser.add_analyze(commands).set_defaults(run=analyze)
    devices_command = commands.add_parser(
        "devices", help="list the devices of the IPU system and who holds them",
        epilog="The environment variable POPTORCH_IPU_SYSTEM names the system.")
    devices_command.add_argument("--json", action="store_true", help="as JSON")
    devices_command.set_defaults(run=devices)
    cache.add_parser(commands)
    include_command = commands.add_parser("include", help="print the folder of the C++ header")
    include_command.set_defaults(run=include)
    return top


def main(words=None):
    """Runs one command; the exit status is 1 after an error, which goes to stderr."""
    arguments = parser().parse_args(words)
    try:
        return arguments.run(arguments) or 0
    except (Error, OSError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
