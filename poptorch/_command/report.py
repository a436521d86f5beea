"""``poptorch report``."""

from pathlib import Path

from poptorch._command import printed
from poptorch._command.given import model_arguments, outputs
from poptorch._estimate.estimate import estimate
from poptorch._reports.device.report import DeviceReport
from poptorch.errors import Error

SUMMARY = "print or write what a model costs on IPUs, without running it"
EXAMPLES = (
    "poptorch report net.py:Net --input f32[16,64] -o old.json",
    "poptorch report net.py:Net --input f32[16,64] --optimizer adamw \\\n"
    "      -o report.html",
    "poptorch report net.py:Net --input f32[32,64] --compare old.json \\\n"
    "      --options device_iterations=4")


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    model_arguments.add(parser)
    model_arguments.add_optimizer(parser)
    parser.add_argument("-o", "--output", metavar="FILE",
                        help="write a .html page or a .json file; without it, print text")
    parser.add_argument("--compare", metavar="FILE.json",
                        help="a report to compare with: print what differs; on a page, show both")
    printed.add_json(parser)


def run(arguments) -> None:
    """Prints or writes the report of a model in a file."""
    suffix = Path(arguments.output or "").suffix
    if arguments.output is not None and suffix not in (".html", ".json"):
        raise Error(f"[report] expected an output of .html or .json, got {arguments.output!r}. "
                    f"Change the ending.")
    outputs.check(arguments.output, "report")
    before = None if arguments.compare is None else DeviceReport.from_json(arguments.compare)
    given = model_arguments.Model(arguments, "report")
    if given.optimizer is None:
        given.model.eval()
    found = estimate(given.model, given.options, *given.inputs, optimizer=given.optimizer)
    if suffix == ".html":
        found.to_html(arguments.output, other=before)
    elif suffix == ".json":
        found.to_json(arguments.output)
    elif not arguments.json:
        print(found)
    changes = None if before is None or suffix == ".html" else found.diff(before)
    if arguments.json:
        printed.as_json(found._whole() | ({"changes": changes} if changes is not None else {}))
    elif changes is not None:
        print(f"\nchanges from {arguments.compare}:\n{changes}")
