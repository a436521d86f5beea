"""What ``python -m poptorch report`` does."""

import json
from pathlib import Path
from typing import Any

from poptorch._command import model_file, typed_inputs
from poptorch._estimate.estimate import estimate
from poptorch._reports.device.report import DeviceReport
from poptorch.errors import Error
from poptorch.options import Options


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
    found = estimate(model, _options(module, arguments.options), *inputs,
                     optimizer=typed_inputs.optimizer(arguments.optimizer, model))
    if suffix == ".html":
        found.to_html(arguments.output, other=before)
    elif suffix == ".json":
        found.to_json(arguments.output)
    else:
        print(found)
    if before is not None and suffix != ".html":
        print(f"\nchanges from {arguments.compare}:\n{found.diff(before)}")


def _options(module, settings: list[str]) -> Options:
    given = getattr(module, "options", None)
    given = given() if callable(given) else given
    base = given if isinstance(given, Options) else Options()
    changes = dict(map(_setting, settings))
    try:
        return Options.fromDict({**base.toDict(), **changes}) if changes else base
    except (ValueError, TypeError) as error:
        raise Error(str(error)) from None


def _setting(text: str) -> tuple[str, Any]:
    name, is_given, value = text.partition("=")
    if not is_given:
        raise Error(f"[report] expected an option like device_iterations=4, got {text!r}. Use the "
                    f"names of Options.toDict().")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # a text without quotes
