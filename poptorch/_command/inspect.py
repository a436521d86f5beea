"""``poptorch inspect``."""

import json
import re

from poptorch import _C
from poptorch._base.types import torch_dtype
from poptorch._command import printed
from poptorch._command.given import program_file
from poptorch._files.executable import File
from poptorch._runtime import settings
from poptorch.options import Options

SUMMARY = "show the inputs, outputs, weights and options of a compiled model"
EXAMPLES = ("poptorch inspect net.poptorch", "poptorch inspect net.poptorch --json")

_OPAQUE = re.compile(r"\boverload=\"([\w:.]+)\"")


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    program_file.add_file(parser)
    printed.add_json(parser)


def run(arguments) -> None:
    """Prints what a file holds. No class of the model is needed."""
    found = described(program_file.opened(arguments.file, arguments.program, "inspect"))
    if arguments.json:
        printed.as_json(found)
        return
    defaults = Options().toDict()
    printed.rows([
        ("model", f"{found['model']}, {'training' if found['training'] else 'inference'}"),
        *(("target", f"{name}: {value}") for name, value in found["target"].items()
          if value is not None),
        *(("input", f"{row['name']} {printed.type_text(row)}") for row in found["inputs"]),
        *(("output", f"{row['name']} {printed.type_text(row)}") for row in found["outputs"]),
        ("weights", f"{len(found['weights'])} tensors, "
                    f"{sum(row['bytes'] for row in found['weights']):,} bytes"),
        *(("weight", f"{row['name']} {printed.type_text(row)}") for row in found["weights"]),
        *(("option", f"{name}={value}") for name, value in found["options"].items()
          if value != defaults.get(name)),
        *(("memory", f"{name}: {size:,} bytes") for name, size in found["memory"].items()
          if isinstance(size, int) and size),
        *(("operators", f"{phase}: {', '.join(f'{n} {op}' for op, n in sorted(names.items()))}")
          for phase, names in found["operators"].items() if names),
        ("torch", f"written with {found['torch']['version']}, operators: "
                  f"{', '.join(found['torch']['operators']) or 'none'}")])


def described(file: File) -> dict:
    """What a program in a file takes, returns and holds, as values that JSON supports."""
    with file.guard("runtime.json"):
        runtime = json.loads(file._needed("runtime.json"))
    options = file.options
    executable = file.executable(settings.compile_options(options))
    streams = {stream.name: stream for stream in executable.streams()}
    results = [row for row in runtime["outputs"] if row["is_result"]]
    weights = file._tensors("weights.safetensors")
    return {
        "model": file.manifest["model_class"], "training": file.manifest["training"],
        "inputs": [{"name": row["name"], "shape": row["shape"], "dtype": _dtype(row["dtype"])}
                   for row in runtime["inputs"]],
        "outputs": [{"name": f"output{number}", "shape": row["shape"],
                     "dtype": _dtype(streams[row["stream"]].dtype)}
                    for number, row in enumerate(results)],
        "weights": [_weight(name, weights[path]) for name, path in runtime["state_dict"].items()],
        "options": options.toDict(),
        "memory": {**executable.memory_report(), "ipus": _C.ipu_memory(executable.ir("place"))},
        "operators": executable.op_report(),
        "target": {"ipus": executable.ipus, "replicas": executable.replicas,
                   "ipu_target": options.ipu_target, "ipu_system": options.ipu_system,
                   "without_python": runtime["refused"] or "yes"},
        "torch": {"version": file.manifest["torch_version"],
                  "operators": sorted(set(_OPAQUE.findall(executable.ir("plan"))))}}


def _dtype(name: str) -> str:
    return printed.dtype_name(torch_dtype(name))


def _weight(name: str, tensor) -> dict:
    return {"name": name, "shape": list(tensor.shape), "dtype": printed.dtype_name(tensor.dtype),
            "bytes": tensor.nbytes}
