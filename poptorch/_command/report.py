"""What ``python -m poptorch report`` does."""

import json
import re
from pathlib import Path
from typing import Any

import torch

from poptorch import optim
from poptorch._command import model_file
from poptorch._estimate.estimate import estimate
from poptorch._reports.device.report import DeviceReport
from poptorch.errors import Error
from poptorch.options import Options

_TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
          "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}
_OPTIMIZERS = {kind.__name__.lower(): kind
               for kind in (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.LAMB)}
_LEARNING_RATE = 0.01  # costs do not depend on it


def report_file(arguments) -> None:
    """Prints or writes the report of a model in a file; see ``report_parser``."""
    suffix = Path(arguments.output or "").suffix
    if arguments.output is not None and suffix not in (".html", ".json"):
        raise Error(f"[report] expected an output of .html or .json, got {arguments.output!r}. "
                    f"Change the ending.")
    before = None if arguments.compare is None else DeviceReport.from_json(arguments.compare)
    module, model = model_file.read(arguments.model, "report")
    inputs = tuple(_input(text) for text in arguments.input) or model_file.inputs(
        module, "report", " Give the arguments with --input.")
    kind = arguments.optimizer
    if kind is None:
        model.eval()
    optimizer = kind and _OPTIMIZERS[kind](model.parameters(), lr=_LEARNING_RATE)
    found = estimate(model, _options(module, arguments.options), *inputs, optimizer=optimizer)
    if suffix == ".html":
        found.to_html(arguments.output, other=before)
    elif suffix == ".json":
        found.to_json(arguments.output)
    else:
        print(found)
    if before is not None and suffix != ".html":
        print(f"\nchanges from {arguments.compare}:\n{found.diff(before)}")


def _input(text: str) -> torch.Tensor:
    match = re.fullmatch(r"(\w+)\[((?:\d+(?:,\d+)*)?)\]", text)
    if match is None or match[1] not in _TYPES:
        raise Error(f"[report] expected an input like f32[8,3,224,224], got {text!r}. The types "
                    f"are {', '.join(_TYPES)}.")
    sizes = [int(size) for size in match[2].split(",") if size]
    return torch.zeros(sizes, dtype=_TYPES[match[1]])


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
