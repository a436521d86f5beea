"""Files of compiled models, as commands use them."""

import argparse
import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path

import torch

from poptorch._base.pytree.structure import Structure
from poptorch._base.types import narrowed
from poptorch._command import printed
from poptorch._command.given import model_file, stand_ins
from poptorch._files import archive, bundle, executable
from poptorch._files.executable import File
from poptorch.errors import Error
from poptorch.models import loaded


def add_file(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of a command that takes a program from a file."""
    parser.add_argument("file", help="a file that `poptorch compile`, save() or compileAndExport() "
                        "wrote")
    parser.add_argument("--program", metavar="NAME", help="the program of a file that "
                        "save_bundle() wrote")


def add_run(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of a command that runs a program."""
    add_file(parser)
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE",
                        help="import a Python file or module first. A program needs this if its "
                        "arguments, results or optimizer are objects of your own classes")
    parser.add_argument("--threads", type=count, metavar="N",
                        help="number of threads; default: one for each core")


def count(text: str) -> int:
    """A whole number of at least 1, for an option."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return value


def read(arguments: argparse.Namespace, where: str) -> "Program":
    """The program that the arguments of :func:`add_run` name."""
    return Program(opened(arguments.file, arguments.program, where), arguments.imports, where)


def opened(path: str, program: str | None, where: str) -> File:
    """A file of one program, or the named one of several."""
    if program is None:
        return executable.File(path)
    found = bundle.read(path)
    if program not in found:
        raise Error(f"[{where}] {path} has no program {program!r}. It has {', '.join(found)}.")
    return found[program]


@contextlib.contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Runs with a number of threads; None: as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Program:
    """A program of a file, ready to run.

    Attributes:
        executor: what ``poptorch.load`` returns.
        inputs: name, shape and dtype of each tensor that it takes, in order.
    """

    def __init__(self, file: File, imports: list[str], where: str, *, has_code: bool = False):
        """Loads a program; with ``has_code``, only for classes that ``imports`` has."""
        for name in imports:
            if name.endswith(".py"):
                model_file.module_of(name, where)
            else:
                importlib.import_module(name)
        if "model" not in file:
            raise Error(f"[{where}] {file.path} was written with export_model=False and has no "
                        f"module. Write it with export_model=True, or use poptorch-run.")
        try:
            self._stand_ins = {} if has_code else stand_ins.made(file)
            with stand_ins.found_by_name(self._stand_ins):
                self.executor = loaded(file, None)
                structure = file.document("interface")["arguments"]["structure"]
                self._structure = Structure.from_data(structure, "arguments")
        except Error as error:
            if "has not imported" not in str(error):
                raise
            raise Error(f"{error} Use --import to import a Python file or module.") from error
        self._compiled = self.executor._saving.programs.require(where)
        leaves = self._compiled.arguments.tensor_leaves()
        self.inputs = [{"name": leaf.path, "shape": list(leaf.shape),
                        "dtype": printed.dtype_name(leaf.dtype)} for leaf in leaves]
        self._types = [(leaf.shape, leaf.dtype) for leaf in leaves]

    def arguments(self) -> tuple[tuple, dict]:
        """Arguments of the types that the program takes, filled with zeros."""
        return self._call([torch.zeros(shape, dtype=dtype) for shape, dtype in self._types])

    def _call(self, tensors: list[torch.Tensor]) -> tuple[tuple, dict]:
        return self._compiled.arguments._unbind(self._structure.unflatten(tensors))

    def run(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Calls the program with tensors in the order of ``inputs``; the tensors of its results."""
        args, kwargs = self._call(tensors)
        return Structure.of(self.executor(*args, **kwargs))[0]

    def save(self, path: str) -> str:
        """Writes the program with its state, also where the classes of its module are not imported.

        Returns the path.
        """
        with stand_ins.found_by_name(self._stand_ins):
            return self.executor.save(path)

    def check(self, number: int, tensor: torch.Tensor, path: str, where: str) -> None:
        """An Error unless a tensor is of the type that an input has."""
        shape, dtype = self._types[number]
        if tensor.shape != shape or narrowed(tensor.dtype) is not dtype:
            given = {"dtype": printed.dtype_name(tensor.dtype), "shape": list(tensor.shape)}
            row = self.inputs[number]
            raise Error(f"[{where}] {path} is {printed.type_text(given)}, and the program takes "
                        f"{row['name']}: {printed.type_text(row)}. Change the array.")

    def loss_of(self, results: list[torch.Tensor]) -> torch.Tensor | None:
        """The first result that is one number for each micro-batch; without one, the first."""
        streams = {stream.name: stream for stream in self._compiled.executable.streams()}
        names = [name for name, output in self._compiled.program.outputs
                 if output is not None and output.kind == "output"]
        numbers = [result for name, result in zip(names, results)
                   if name in streams and not streams[name].sizes]
        return next(iter([*numbers, *results]), None)


def is_program(path: str) -> bool:
    """Whether a path is that of a compiled model, not ``file.py:Model``."""
    return path.endswith(archive.SUFFIX) or (Path(path).is_file() and not path.endswith(".py"))
