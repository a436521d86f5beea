"""``poptorch run``."""

import time
from pathlib import Path

import numpy
from tqdm import tqdm

from poptorch._command import printed
from poptorch._command.given import arrays, program_file
from poptorch.errors import Error

SUMMARY = "run a compiled model on arrays"
EXAMPLES = ("poptorch run net.poptorch x.npy --outdir out",
            "poptorch run net.poptorch inputs.npz --outdir out --repeat 20 --json")


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    program_file.add_run(parser)
    parser.add_argument("arrays", nargs="*", help="files of tensors in the order of forward's "
                        "parameters: .npy; or .npz and .pt with several tensors, by name or in "
                        "order")
    parser.add_argument("--outdir", metavar="DIR", help="write output0.npy, output1.npy, ... to "
                        "this folder, which is created")
    parser.add_argument("--repeat", type=program_file.count, default=1, metavar="N",
                        help="run N times and print the latency; default: 1")
    printed.add_json(parser)


def run(arguments) -> None:
    """Runs a program, writes its results and prints their types and the latency."""
    with program_file.threads(arguments.threads):
        program = program_file.read(arguments, "run")
        if program.executor.training:
            raise Error(f"[run] {arguments.file} is a program for training. Use `poptorch train`.")
        names = [row["name"] for row in program.inputs]
        tensors = arrays.read(arguments.arrays, names, "run")
        for number, tensor in enumerate(tensors):
            program.check(number, tensor, f"the array for {names[number]}", "run")
        seconds = []
        for _ in tqdm(range(arguments.repeat), desc="run", leave=False,
                      disable=None if arguments.repeat > 1 else True):
            begin = time.perf_counter()
            results = program.run(tensors)
            seconds.append(time.perf_counter() - begin)
    rows = [_written(number, result, arguments.outdir) for number, result in enumerate(results)]
    latency = _latency(seconds)
    if arguments.json:
        printed.as_json({"outputs": rows, "latency": latency})
        return
    for row in rows:
        print(f"{row['name']} {printed.type_text(row)}{row['file'] and ' -> ' + row['file'] or ''}")
    if arguments.repeat > 1:
        print(f"{latency['runs']} runs: median {latency['median_ms']:.3f} ms, 90% "
              f"{latency['p90_ms']:.3f} ms, 99% {latency['p99_ms']:.3f} ms")


def _written(number: int, result, folder: str | None) -> dict:
    name, path = f"output{number}", None
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        path = Path(folder) / f"{name}.npy"
        arrays.write(path, result)
    return {"name": name, "shape": list(result.shape), "dtype": printed.dtype_name(result.dtype),
            "file": path and str(path)}


def _latency(seconds: list[float]) -> dict:
    median, most, nearly_all = (1e3 * numpy.percentile(seconds, (50, 90, 99), method="lower")
                                ).tolist()
    return {"runs": len(seconds), "median_ms": median, "p90_ms": most, "p99_ms": nearly_all}
