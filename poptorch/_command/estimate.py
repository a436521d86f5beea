"""``poptorch estimate``."""

from poptorch._command import printed
from poptorch._command.given import model_arguments
from poptorch._estimate.estimate import estimate
from poptorch._estimate.fit import fit

SUMMARY = "estimate in a few lines whether a model fits IPUs and how fast it is"
EXAMPLES = ("poptorch estimate net.py:Net --input f32[16,64]",
            "poptorch estimate net.py:Net --optimizer adam --fit --json")
STATUS = "0 if the model fits, 1 if not or after an error, 2 for a wrong command line."


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    model_arguments.add(parser)
    model_arguments.add_optimizer(parser)
    parser.add_argument("--fit", action="store_true",
                        help="find changes that make the model fit, and estimate it with them")
    printed.add_json(parser)


def run(arguments) -> int:
    """Prints the estimate; 1 if the model does not fit, else 0."""
    given = model_arguments.Model(arguments, "estimate")
    if given.optimizer is None:
        given.model.eval()
    function = fit if arguments.fit else estimate
    found = function(given.model, given.options, *given.inputs, optimizer=given.optimizer)
    report = found.report if arguments.fit else found
    changes = [change.text for change in found.changes] if arguments.fit else []
    tiles = report.tile_memory
    facts = {"title": report.title, "target": report.target, "fits": report.fits,
             "ipus": len(tiles.ipus), "tile_bytes": tiles.peak, "tile_limit_bytes": tiles.limit,
             "cycles": report.cycles, "seconds": report.seconds, "throughput": report.throughput,
             "memory": report.memory}
    if arguments.json:
        printed.as_json(facts | ({"changes": changes} if arguments.fit else {}))
        return int(not report.fits)
    low, high = report.interval
    printed.rows([
        ("model", report.title), ("target", f"{report.target}, IPUs: {len(tiles.ipus)}"),
        ("fits", "yes" if report.fits else "no"),
        ("fullest tile", f"{tiles.peak:,} of {tiles.limit:,} bytes"),
        ("cycles", f"{report.cycles:,.0f} a step, 90 % between {low:,.0f} and {high:,.0f}"),
        ("time", f"{1e6 * report.seconds:,.1f} us a step"),
        ("throughput", f"{report.throughput:,.0f} samples a second"),
        *((f"{name} memory", f"{size:,} bytes") for name, size in report.memory.items() if size),
        *(("change", text) for text in changes)])
    return int(not report.fits)
