"""``poptorch opt``."""

import re
import sys
from pathlib import Path

from poptorch import _C
from poptorch.errors import Error

SUMMARY = "run passes on a file of IR text"
EXAMPLES = ("poptorch opt text.ir", "poptorch opt --passes cse,dce --verbose text.ir")


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    names = ", ".join(name for name, _ in _C.passes())
    parser.add_argument("file", help="a .ir file")
    parser.add_argument("--passes", help=f"separated by commas, of {names}; default: all that a "
                        "compilation runs")
    parser.add_argument("--verbose", action="store_true", help="print the time of each pass")


def run(arguments) -> None:
    """Prints the IR text of a file after some passes; times go to stderr."""
    module = read_module(arguments.file)
    passes = arguments.passes.split(",") if arguments.passes else _C.pipeline()
    for name, changed, seconds in _C.run_passes(module, passes):
        if arguments.verbose:
            note = "" if changed else " (unchanged)"
            print(f"{name}: {seconds * 1e3:.2f} ms{note}", file=sys.stderr)
    print(module.text(), end="")


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
