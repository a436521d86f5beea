"""What ``python -m poptorch report`` does."""

from pathlib import Path

from poptorch._command import given_options, model_file, typed_inputs
from poptorch._estimate.estimate import estimate
from poptorch._reports.device.report import DeviceReport
from poptorch.errors import Error


def report_file(arguments) -> None:
    """Prints or writes the report of a model in a file; see ``report_parser``."""
    suffix = Path(arguments.output or "").suffix
    if arguments.output is not None and suffix not in (".html", ".json"):
        raise Error(f"[report] expected an output of .html or .json, got {arguments.output!r}. "
                    f"Change the ending.")
    before = None if arguments.compare is None else DeviceReport.from_json(arguments.compare)
    module, model = model_file.read(arguments.model, "report")
    inputs = typed_inputs.inputs(arguments.input, module, "report")
    if arguments.optimizer is None:
        model.eval()
    found = estimate(model, given_options.of(module, arguments.options, "report"), *inputs,
                     optimizer=typed_inputs.optimizer(arguments.optimizer, model))
    if suffix == ".html":
        found.to_html(arguments.output, other=before)
    elif suffix == ".json":
        found.to_json(arguments.output)
    else:
        print(found)
    if before is not None and suffix != ".html":
        print(f"\nchanges from {arguments.compare}:\n{found.diff(before)}")
