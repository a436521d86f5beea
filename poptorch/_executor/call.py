"""One call of a compiled program: host memory in, run, host memory out, the user's structure."""

import torch

from poptorch._executor.outputs import OutputPlan
from poptorch._translate.types import host_tensor, narrowed, torch_dtype
from poptorch.enums import OutputMode
from poptorch.errors import Error

_MODE_NAMES = {OutputMode.All: "all", OutputMode.Final: "final", OutputMode.EveryN: "every_n",
               OutputMode.Sum: "sum"}


class Call:
    """Everything that is the same in each call, worked out once.

    Args:
        executable: the compiled program.
        program: what translate made, for the names of streams.
        captured: what capture recorded, for the structure of the outputs.
        options: resolved options.
        spec: loops around the captured graph.
        arguments: the argument structure.
    """

    def __init__(self, executable, program, captured, options, spec, arguments):
        self._executable = executable
        self._rebuild = captured.rebuild_output
        self._streams = executable.streams()
        self._position = {stream.name: i for i, stream in enumerate(self._streams)}
        self._pointers = [0] * len(self._streams)
        self._held: list = [None] * len(self._streams)
        self._leaves = arguments.tensor_leaves()
        # (stream position, index among the argument tensors)
        self._inputs = [(self._position[stream], leaf)
                        for leaf, stream in program.inputs.items()
                        if stream in self._position]
        self._results: list = []
        self._write_backs: list = []
        self._gradient_outputs: list = []
        steps = (spec.device_iterations, spec.accumulation, spec.replicas)
        plan = OutputPlan(options.output_mode, options.output_return_period, *steps)
        everything = OutputPlan(OutputMode.All, 1, *steps)
        last = OutputPlan(OutputMode.Final, 1, 1, 1, 1)
        for stream, output in program.outputs:
            self._add_output(stream, output, plan, everything, last)

    def _add_output(self, stream: str, output, plan, everything, last) -> None:
        position = self._position[stream]
        info = self._streams[position]
        dtype, sizes = torch_dtype(info.dtype), list(info.sizes)
        if output is None:
            self._set_mode(stream, OutputMode.Final, 1)
            self._gradient_outputs.append((position, stream.removeprefix("Gradient___"), sizes,
                                           dtype))
        elif output.kind == "input_update":
            self._set_mode(stream, OutputMode.All, 1)
            self._write_backs.append((position, output.leaf, everything.shape(sizes), dtype))
        else:
            self._set_mode(stream, plan.mode, plan.period)
            self._results.append((position, plan.shape(sizes), dtype))

    def _set_mode(self, stream: str, mode: OutputMode, period: int) -> None:
        self._executable.set_output_mode(stream, _MODE_NAMES[mode], period)

    def bind(self, stream: str, tensor: torch.Tensor) -> None:
        """Lets a stream read ``tensor`` (a host tensor of the device's dtype) in each call."""
        position = self._position.get(stream)
        if position is not None:
            self._held[position] = tensor
            self._pointers[position] = tensor.data_ptr()

    def run(self, tensors: list[torch.Tensor]):
        """Runs the program on the argument tensors; returns what ``forward`` returns."""
        pointers, held = self._pointers, self._held
        for position, leaf in self._inputs:
            host = tensors[leaf]
            if narrowed(host.dtype) is not host.dtype or not host.is_contiguous() \
                    or host.requires_grad:
                host = host_tensor(host, self._leaves[leaf].path)
            held[position] = host
            pointers[position] = host.data_ptr()
        results = [self._allocate(*output) for output in self._results]
        updates = [self._allocate(position, shape, dtype)
                   for position, _, shape, dtype in self._write_backs]
        for position, _, sizes, dtype in self._gradient_outputs:
            self._allocate(position, sizes, dtype)
        self._executable.run(pointers, torch.get_num_threads())
        with torch.no_grad():
            for (_, leaf, _, _), update in zip(self._write_backs, updates):
                tensors[leaf].copy_(update)
        return self._rebuild(results)

    def _allocate(self, position: int, shape, dtype) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=dtype)
        self._held[position] = tensor
        self._pointers[position] = tensor.data_ptr()
        return tensor

    def gradients(self) -> dict[str, torch.Tensor]:
        """Gradients of the last update, by parameter.

        Raises:
            poptorch.Error: They were not kept, or nothing has run.
        """
        found = {name: self._held[position]
                 for position, name, _, _ in self._gradient_outputs}
        if not found or any(t is None for t in found.values()):
            raise Error("[testing.gradients] no gradients are there. Compile and run the model "
                        "within `with poptorch.testing.keep_gradients():`.")
        return found
