"""Writes files of programs, or runs those that another Python wrote.

``python -m tests.versions.exchange write FOLDER`` also writes arguments, and the results of calls
after the file was written. ``read`` makes the same calls and prints, for each program, "equal" or
what differs.
"""

import sys
import zipfile
from pathlib import Path

import safetensors.torch
import torch

import poptorch
from tests.versions.networks import PROGRAMS, Program

CALLS = 3


def results(model: poptorch.PoplarExecutor, arguments: list[tuple]) -> dict[str, torch.Tensor]:
    """What calls return, and the weights after them."""
    found = {}
    for number, one in enumerate(arguments):
        out = model(*one)
        parts = out.items() if isinstance(out, dict) else enumerate(
            out if isinstance(out, tuple) else (out,))
        found |= {f"call {number}, result {name}": value.contiguous() for name, value in parts}
    return found | {name: value.detach().clone() for name, value in model.state_dict().items()}


def write(folder: Path, name: str, program: Program) -> None:
    torch.manual_seed(0)
    model = program.executor()
    model(*program.inputs())
    path = model.save(str(folder / f"{name}.poptorch"))
    assert b"aten::" not in zipfile.ZipFile(path).read("plan.ir"), "an operator of torch"
    arguments = [program.inputs() for _ in range(CALLS)]
    given = {f"{call} {number}": tensor for call, tensors in enumerate(arguments)
             for number, tensor in enumerate(tensors)}
    safetensors.torch.save_file(given, folder / f"{name}.arguments")
    safetensors.torch.save_file(results(model, arguments), folder / f"{name}.results")


def read(folder: Path, name: str) -> str:
    given = safetensors.torch.load_file(folder / f"{name}.arguments")
    # In memory of their own, as the writer had them.
    arguments = [tuple(given[f"{call} {number}"].clone()
                       for number in range(len(given) // CALLS)) for call in range(CALLS)]
    found = results(poptorch.load(str(folder / f"{name}.poptorch")), arguments)
    expected = safetensors.torch.load_file(folder / f"{name}.results")
    if found.keys() != expected.keys():
        return f"results {sorted(found)}, expected {sorted(expected)}"
    different = [f"{key}: {value.double() - found[key].double()}" for key, value in expected.items()
                 if value.dtype != found[key].dtype or not torch.equal(value, found[key])]
    return different[0] if different else "equal"


def main(what: str, folder: Path) -> None:
    for name, program in PROGRAMS.items():
        if what == "write":
            write(folder, name, program)
        else:
            print(f"{name}: {read(folder, name)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
