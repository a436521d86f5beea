"""One call of a compiled program: host memory in, run, host memory out, the user's structure."""

import math
from collections.abc import Callable
from functools import partial

import torch

from poptorch import _C
from poptorch._base.logging import logger
from poptorch._base.types import complex_dtype, host_tensor, torch_dtype, without_memory, write_back
from poptorch._guards import plain_tensors
from poptorch._runtime import replica_consistency
from poptorch._runtime.argument_memory import check_memory, check_reshaped
from poptorch._runtime.outputs import OutputPlan
from poptorch._translate import loss_scale, reduction
from poptorch.enums import OutputMode
from poptorch.errors import Error

_MODE_NAMES = {OutputMode.All: "all", OutputMode.Final: "final", OutputMode.EveryN: "every_n",
               OutputMode.Sum: "sum"}
_LOG_NAMES = {OutputMode.All: "ALL", OutputMode.Final: "FINAL", OutputMode.EveryN: "EVERYN",
              OutputMode.Sum: "Sum"}


class Call:
    """Everything that is the same in each call of a program, worked out once."""

    def __init__(self, executable, interface, options):
        program, spec = interface.program, interface.spec
        self._executable = executable
        if options.timeout_s is not None:
            executable.set_timeout(options.timeout_s)
        self._rebuild = interface.outputs.unflatten
        self._streams = executable.streams()
        self._position = {stream.name: i for i, stream in enumerate(self._streams)}
        self._pointers = [0] * len(self._streams)
        self._held: list = [None] * len(self._streams)
        self._pool = _C.HostPool()
        self._leaves = interface.arguments.tensor_leaves()
        self._kinds = [_C.TensorKind(leaf.dtype, leaf.shape) for leaf in self._leaves]
        # (stream position, index among the argument tensors)
        self._inputs = [(self._position[stream], leaf)
                        for leaf, stream in program.inputs.items()
                        if stream in self._position]
        # (stream position, what makes its tensor), and what the tensor is for
        self._results: list = []
        self._write_backs: list = []
        # Of captured tensors; without a host tensor in a program that came from a file.
        self._constant_updates: list = []
        self._gradient_outputs: list = []
        self._anchors: list = []
        steps = (spec.device_iterations, spec.accumulation, spec.replicas)
        if spec.input_group_size > 1 and any(
                output is not None and output.kind == "input_update"
                for _, output in program.outputs):
            raise Error("[inputReplicaGrouping] forward changes an input in place, and several "
                        "replicas share it. Change a clone() of it, or leave the groups out.")
        self._is_synthetic, self._has_warned = spec.synthetic_data, False
        self._modes: dict[str, tuple[str, int]] = {}  # of each output
        self._keeps_gradients = spec.keep_gradients
        plan = OutputPlan(options.output_mode, options.output_return_period, *steps)
        everything = OutputPlan(OutputMode.All, 1, *steps)
        self._options, self._steps = options, steps
        self._weight_groups, self._states = program.weight_groups, program.states
        self._host_sites = program.host_sites
        self._spec, self._loss = spec, program.optimizer.loss if program.optimizer else ""
        for stream, output in program.outputs:
            self._add_output(stream, output, plan, everything)
        self._kept = [*self._gradient_outputs, *self._anchors]
        self._shared = replica_consistency.shared_states(executable, program)
        self._plain = interface.plain_tensors
        self._changed_plain = [(tensor, plain_tensors.called(tensor))
                               for _, _, tensor in self._constant_updates if tensor is not None]
        self._is_memory_seen = bool(self._write_backs or self._changed_plain)
        self._reshaped = program.reshaped if math.prod(steps) == 1 else {}
        if program.reshaped and not self._reshaped:
            logger.warning(
                "[arguments] forward changes the shape of %s in place, and a call passes %d "
                "micro-batches in one tensor: the caller's tensor keeps its shape.",
                self._leaves[min(program.reshaped)].path, math.prod(steps))
        self._updates = (*self._write_backs, *self._constant_updates)
        self._outputs = (*self._results, *self._updates, *self._kept)

    def _add_output(self, stream: str, output, plan, everything) -> None:
        position = self._position[stream]
        info = self._streams[position]
        of_weight = stream.removeprefix("Gradient___")
        is_complex = self._states[of_weight].is_complex() if output is None else output.is_complex
        sizes = list(info.sizes)[:-1] if is_complex else list(info.sizes)
        of_replicas = [self._executable.replicas, *sizes]
        if output is None:
            make = self._keep(info, OutputMode.Final, 1, of_replicas, is_complex)
            self._gradient_outputs.append((position, make, of_weight))
        elif output.kind == "anchor":
            self._add_anchor(position, output.name)
        elif output.kind == "input_update":
            make = self._keep(info, OutputMode.All, 1, everything.shape(sizes), is_complex)
            self._write_backs.append((position, make, output.leaf))
        elif output.kind == "constant_update":
            make = self._keep(info, OutputMode.Final, 1, of_replicas, is_complex)
            self._constant_updates.append((position, make, output.tensor))
        else:
            make = self._keep(info, plan.mode, plan.period, plan.shape(sizes), is_complex)
            self._results.append((position, make))

    def _add_anchor(self, position: int, short: str) -> None:
        info = self._streams[position]
        name, mode, period = self._options.anchored_tensors[short]
        if mode is None:
            mode, period = self._options.output_mode, self._options.output_return_period
        iterations, _, replicas = self._steps
        # What is not in the accumulation loop has one value for each device iteration.
        micro = self._executable.host_slices(info.name) // (iterations * replicas)
        plan = OutputPlan(mode, period, iterations, micro, replicas)
        logger.debug("Anchored %s %s/%d", name, _LOG_NAMES[mode], period)
        make = self._keep(info, mode, period, plan.shape(list(info.sizes)))
        self._anchors.append((position, make, short))

    def _keep(self, stream, mode: OutputMode, period: int, shape: list[int],
              is_complex: bool = False) -> Callable[[], torch.Tensor]:
        """Sets which results of a stream a run keeps; returns what allocates memory for them. If
        ``is_complex``, a result is pairs in the program, and ``shape`` is without their dimension.
        """
        name = "none" if self._is_synthetic else _MODE_NAMES[mode]
        self._modes[stream.name] = (name, period)
        self._executable.set_output_mode(stream.name, name, period)
        dtype = torch_dtype(stream.dtype)
        if is_complex:
            dtype = complex_dtype(dtype)
        self._pool.expect(math.prod(shape) * dtype.itemsize)
        return partial(_C.TensorKind(dtype, shape).empty, self._pool)

    def result_types(self) -> dict[str, tuple]:
        """Shape and dtype of the host tensor of each output, by stream."""
        found = {}
        for position, make, *_ in self._outputs:
            tensor = make()
            found[self._streams[position].name] = (list(tensor.shape), tensor.dtype)
        return found

    def described_outputs(self) -> list[dict]:
        """The outputs as data for a file; those that ``forward`` returns first, in their order."""
        found = []
        for position, make, *_ in self._outputs:
            stream = self._streams[position]
            mode, period = self._modes[stream.name]
            found.append({"stream": stream.name, "is_result": len(found) < len(self._results),
                          "mode": mode, "period": period, "shape": list(make().shape)})
        return found

    def check_structure(self) -> None:
        """Puts results together once, as a call does; an Error if their classes refuse them."""
        results = [make() for _, make in self._results]
        try:
            self._rebuild(results)
        except Exception as error:
            raise Error(f"[loadExecutable] the results cannot be put together as forward returned "
                        f"them: {type(error).__name__}: {error}. Compile the model again; where a "
                        f"parser was registered, reconstruct() may use no tensor of the original "
                        f"object, as a file has none.") from error

    def anchored(self, short: str) -> torch.Tensor:
        """The values of an anchored tensor in the last run. An Error if there are none."""
        known = [name for _, _, name in self._anchors]
        if short not in known:
            raise Error(f"[getAnchoredTensor] no tensor is anchored as {short!r}. Anchored: "
                        f"{', '.join(known) or 'none'}. Call options.anchorTensor({short!r}, "
                        f"<name of the tensor>) before you wrap the model.")
        tensor = self.anchored_if_run(short)
        if tensor is None:
            raise Error(f"[getAnchoredTensor] {short!r} has no values: the model has not run. Call "
                        f"it first.")
        return tensor

    def anchored_if_run(self, short: str) -> torch.Tensor | None:
        """The values of an anchored tensor in the last run; None: nothing has run."""
        return next((self._held[position] for position, _, name in self._anchors
                     if name == short), None)

    @property
    def replicas(self) -> int:
        """The replicas that run the program."""
        return self._executable.replicas

    def bind(self, stream: str, tensor: torch.Tensor) -> None:
        """Lets a stream read ``tensor`` (a host tensor of the device's dtype) in each call."""
        position = self._position.get(stream)
        if position is not None:
            self._held[position] = tensor
            self._pointers[position] = tensor.data_ptr()

    def bind_like(self, other: "Call") -> None:
        """Lets streams read what those of the same name read in another program's calls."""
        for stream, position in other._position.items():
            if other._streams[position].is_input and other._held[position] is not None:
                self.bind(stream, other._held[position])

    def streams_alone(self) -> tuple[list[int], list] | None:
        """The stream of each argument tensor (-1: none) and the streams of the results, by number;
        None if a call does more than to run the program on them."""
        if self._is_synthetic or self._updates or self._kept or self._reshaped \
                or self._host_sites or any(tensor is not None for tensor in self._held):
            return None
        arguments = [-1] * len(self._leaves)
        for position, leaf in self._inputs:
            arguments[leaf] = position
        return arguments, [(position, self._streams[position]) for position, _ in self._results]

    def run(self, tensors: list[torch.Tensor]):
        """Runs the program on the argument tensors; returns what ``forward`` returns."""
        if self._is_synthetic:
            return self._run_synthetic()
        if self._is_memory_seen:
            check_memory(tensors, [leaf.path for leaf in self._leaves],
                         [leaf for _, _, leaf in self._write_backs],
                         self._plain.alive() if self._write_backs else (), self._changed_plain)
        if self._reshaped:
            check_reshaped(tensors, [leaf.path for leaf in self._leaves], self._reshaped)
        # Copies of this call: another thread may make one at the same time.
        pointers, held = self._pointers.copy(), self._held.copy()
        self._take(tensors, pointers, held)
        results = []
        for position, make in self._results:
            result = make()
            pointers[position] = result.data_ptr()
            results.append(result)
        updates = [_allocate(pointers, position, make) for position, make, _ in self._updates]
        kept = [_allocate(pointers, position, make) for position, make, _ in self._kept]
        self._run(pointers)
        for (position, *_), tensor in zip(self._kept, kept):
            self._held[position] = tensor
        if updates:
            with torch.no_grad():
                for (_, _, leaf), update in zip(self._write_backs, updates):
                    write_back(tensors[leaf], update)
                constants = updates[len(self._write_backs):]
                for (_, _, tensor), update in zip(self._constant_updates, constants):
                    if tensor is not None:
                        write_back(tensor, update[0])
        for leaf, calls in self._reshaped.items():
            for name, arguments in calls:
                with torch.no_grad():
                    getattr(tensors[leaf], name)(*arguments)
        return self._rebuild(results)

    def _take(self, tensors: list[torch.Tensor], pointers: list[int], held: list) -> None:
        """Lets the streams of the arguments read their tensors, or copies that ``held`` keeps."""
        addresses = _C.addresses(self._kinds, tensors, not torch.is_grad_enabled())
        for position, leaf in self._inputs:
            pointers[position] = addresses[leaf]
            if addresses[leaf]:
                continue
            self._warn_of_gradient(tensors[leaf], self._leaves[leaf].path)
            held[position] = host = host_tensor(tensors[leaf], self._leaves[leaf].path)
            pointers[position] = host.data_ptr()
            if not pointers[position] and host.numel():
                raise without_memory(self._leaves[leaf].path)

    def _warn_of_gradient(self, tensor: torch.Tensor, path: str) -> None:
        """Warns once of an argument for which the caller may expect a gradient."""
        if tensor.requires_grad and torch.is_grad_enabled() and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "[executor] %s requires grad, but the results of an executor carry no gradient: "
                "backward() reaches neither %s nor the parameters of the module. To train them, "
                "compute the loss in forward and wrap the module with trainingModel; make %s a "
                "parameter if it is trained too. Else pass %s.detach().", path, path, path, path)

    def run_for_nothing(self, tensors: list[torch.Tensor]) -> None:
        """Runs the program and drops what it gives: no tensor of the caller's changes."""
        pointers, held = self._pointers.copy(), self._held.copy()
        if not self._is_synthetic:
            self._take(tensors, pointers, held)
            held += [_allocate(pointers, position, make) for position, make, *_ in self._outputs]
        self._run(pointers)

    def _run_synthetic(self):
        """Runs without any tensor of the host's; results, anchors and kept gradients are zeros."""
        self._run(self._pointers)
        return self.zeros()

    def zeros(self):
        """What a call returns, and what it keeps, with zeros."""
        for position, make, _ in self._kept:
            self._held[position] = make().zero_()
        return self._rebuild([make().zero_() for _, make in self._results])

    def _run(self, pointers: list[int]) -> None:
        if self._host_sites:
            position = self._position.get(loss_scale.STREAM)
            scale = None if position is None else float(self._held[position])
            for site in self._host_sites:
                site.divisor = reduction.of_host(self._spec, self._loss, scale)
        try:
            self._executable.run(pointers, torch.get_num_threads())
        except BaseException:
            replica_consistency.restore(self._executable, self._shared)
            raise
        finally:
            for site in self._host_sites:
                site.finish()

    def gradients(self) -> dict[str, torch.Tensor]:
        """Gradients of the last update by parameter, with those of each group if it has groups."""
        found = {name: self._held[position]
                 for position, _, name in self._gradient_outputs}
        if not self._keeps_gradients or any(t is None for t in found.values()):
            raise Error("[testing.gradients] no gradients are there. Compile and run the model "
                        "within `with poptorch.testing.keep_gradients():`.")
        return {name: self._of_groups(name, values) for name, values in found.items()}

    def _of_groups(self, name: str, values: torch.Tensor) -> torch.Tensor:
        groups = self._weight_groups.get(name)
        if groups is None:
            return values[0]
        return values[[groups.writer(entry) for entry in range(groups.entries)]]


def _allocate(pointers: list[int], position: int, make: Callable[[], torch.Tensor]) -> torch.Tensor:
    tensor = make()
    pointers[position] = tensor.data_ptr()
    return tensor
