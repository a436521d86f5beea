"""What the executor knows of a compiled program, and the form of it that a file holds."""

import math
from dataclasses import dataclass

import torch

from poptorch._capture.captured import OutputSpec
from poptorch._capture.structure import Structure
from poptorch._executor.arguments import Arguments
from poptorch._translate import Program, StepSpec
from poptorch._translate.optimizer import UpdateLayout
from poptorch._translate.types import torch_dtype
from poptorch.errors import Error


@dataclass
class Interface:
    """How arguments, results and states of a program are those of the user's module.

    Attributes:
        arguments: the structure of the arguments.
        outputs: the structure of what ``forward`` returns.
        program: names of streams and states, and the host's tensors.
        spec: the loops around the captured graph.
    """

    arguments: Arguments
    outputs: Structure
    program: Program
    spec: StepSpec

    def to_data(self) -> dict:
        """This as plain data, tensors and classes."""
        program = self.program
        layout = program.optimizer
        return {
            "arguments": self.arguments,
            "outputs": self.outputs.to_data(),
            "inputs": program.inputs,
            "results": [(stream, None if output is None else
                         (output.kind, output.name, output.leaf))
                        for stream, output in program.outputs],
            "states": {path: tensor for path, tensor in program.states.items()
                       if path.startswith("constant.")},
            "weights": [path for path in program.states if not path.startswith("constant.")],
            "tensor_names": program.tensor_names,
            "updated": sorted(program.updated),
            "optimizer": None if layout is None else layout.to_data(),
            "spec": dict(vars(self.spec)),
        }

    @classmethod
    def from_data(cls, data: dict, model: torch.nn.Module) -> "Interface":
        """The interface that :meth:`to_data` described, to the tensors of ``model``.

        Raises:
            poptorch.Error: The module lacks a parameter or buffer of the program.
        """
        named = {**dict(model.named_parameters(remove_duplicate=False)),
                 **dict(model.named_buffers(remove_duplicate=False))}
        missing = [path for path in data["weights"] if path not in named]
        if missing:
            raise Error(f"[loadExecutable] the file was made from a module with {missing[0]}, "
                        f"which {type(model).__name__} does not have. Wrap a module of the same "
                        f"class and settings.")
        arguments = data["arguments"]
        arguments.bind(model)
        program = Program(None, inputs=dict(data["inputs"]))
        program.outputs = [(stream, None if output is None else _output(*output))
                           for stream, output in data["results"]]
        program.states = {path: named[path] for path in data["weights"]} | data["states"]
        program.updated = set(data["updated"])
        program.weight_groups = dict(data["spec"].get("weight_groups", ()))
        program.tensor_names = data["tensor_names"]
        if data["optimizer"] is not None:
            program.optimizer = UpdateLayout.from_data(data["optimizer"], named)
        return cls(arguments, Structure.from_data(data["outputs"]), program,
                   StepSpec(**data["spec"]))

    def check(self, executable, call) -> None:
        """Checks that the program reads and writes host memory of just the sizes it is given.

        Raises:
            ValueError: It does not.
        """
        if executable.device_iterations != self.spec.device_iterations:
            raise ValueError(f"{executable.device_iterations} device iterations, not "
                             f"{self.spec.device_iterations}")
        leaves = self.arguments.tensor_leaves()
        streams = {stream.name: stream for stream in executable.streams()}
        given = {}
        for leaf, stream in self.program.inputs.items():
            given[stream] = (list(leaves[leaf].shape), leaves[leaf].dtype)
        for group in self.program.optimizer.groups if self.program.optimizer else ():
            given[group.stream] = ([len(self.program.optimizer.kind.hyper)], torch.float64)
        given.update(call.result_types())
        for name, stream in streams.items():
            if self.spec.synthetic_data and not stream.is_input:
                continue  # nothing is written to the host
            if name not in given:
                raise ValueError(f"nothing belongs to the stream {name!r}")
            shape, dtype = given[name]
            wanted = executable.host_slices(name) * math.prod(stream.sizes)
            if wanted != math.prod(shape) or torch_dtype(stream.dtype) is not dtype:
                raise ValueError(f"the stream {name!r} is {wanted} elements of {stream.dtype}, "
                                 f"not {math.prod(shape)} of {dtype}")
        for state in executable.states():
            host = self.program.states.get(state.path)
            if host is None:
                continue
            shape = tuple(host.shape[state.path in self.program.weight_groups:])
            if shape != state.sizes:
                raise Error(f"[loadExecutable] {state.path} is {shape} in the module "
                            f"and {state.sizes} in the file. Wrap a module of the same settings.")


def _output(kind: str, name: str, leaf) -> OutputSpec:
    return OutputSpec(kind, name, None, leaf)


def check_same_spec(own: StepSpec, compiled: StepSpec) -> None:
    """Raises an Error when a wrapper's options ask for another program than a file has."""
    for name, value in vars(own).items():
        other = getattr(compiled, name)
        if value != other:
            raise Error(f"[loadExecutable] the executable was compiled with {name}={other}, this "
                        f"wrapper asks for {name}={value}. Wrap the module with the options of "
                        f"the model that was saved, and call the same replicaGrouping().")
