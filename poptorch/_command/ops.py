"""``poptorch ops``."""

import textwrap

from poptorch import _C
from poptorch._command import printed

SUMMARY = "list the operations of the IR, or show one of them"
EXAMPLES = ("poptorch ops", "poptorch ops matmul", "poptorch ops matmul --json")


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("name", nargs="?", help="show this operation in full")
    printed.add_json(parser)


def run(arguments) -> None:
    """Prints the rows of the op table, or one of them in full."""
    if arguments.name is None:
        rows = _C.op_table()
        if arguments.json:
            printed.as_json(rows)
            return
        for row in rows:
            print(printed.short(_signature(row)))
        return
    row = _C.op_row(arguments.name)
    if arguments.json:
        printed.as_json(row)
        return
    for line in (_signature(row), f"  {row['doc']}", f"  ATen: {', '.join(row['aten']) or 'none'}",
                 f"  strided operands: {row['strided']}; effects: {row['effects']}; "
                 f"random: {row['random']}; kernel: {'yes' if row['has_kernel'] else 'none'}"):
        print(textwrap.fill(line, 80, subsequent_indent="    ", break_on_hyphens=False,
                            break_long_words=False))


def _signature(row: dict) -> str:
    """One line: ``name(operands){attributes} -> results``."""
    attrs = ", ".join(
        name if required else f"{name}={default}" for name, default, required, _ in row["attrs"]
    )
    results = ", ".join(row["results"]) or "nothing"
    return f"{row['name']}({', '.join(row['operands'])}){{{attrs}}} -> {results}"
