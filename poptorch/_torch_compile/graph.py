"""One graph of torch.compile as a function that runs it on the device."""

from collections.abc import Sequence
from functools import partial

import torch

from poptorch import _C, profiling
from poptorch._base.layout import dims_in_memory, has_symbolic_sizes
from poptorch._base.torch_private.basic import untraced
from poptorch._base.types import host_tensor, narrowed, torch_dtype
from poptorch._torch_compile.images import images_of
from poptorch.errors import Error
from poptorch.models import inferenceModel
from poptorch.options import Options

aten, ops = torch.ops.aten, torch.ops.poptorch


class CompiledGraph:
    """A graph that a call runs on the list of its arguments; it gives the list of its results.

    The graph is functional: it takes weights as arguments and changes none of its arguments.
    The first call compiles, and so does a call with other sizes. The program reads contiguous
    arguments, and writes results, where the host has them: nothing is copied. Random numbers follow
    torch's generator: each call draws a seed.

    Args:
        graph: what AOTAutograd made.
        options: how to compile and run.
        returned: the number of first results that the caller sees; the others are kept for the
            backward pass and have the dtype and the order in memory of the device. None: all.

    Attributes:
        program: runs later calls. None: nothing is compiled yet, or the executor has to run them.
    """

    def __init__(self, graph: torch.fx.GraphModule, options: Options, returned: int | None = None):
        self._graph, self._options, self._executor = graph, options, None
        self.program: _C.GraphProgram | None = None
        self._inputs = list(graph.graph.find_nodes(op="placeholder"))
        self._results = list(graph.graph.output_node().args[0])
        self.returned = len(self._results) if returned is None else returned
        # Arguments that are also results, as what the backward pass needs, stay on the host.
        self._passed = [(index, self._inputs.index(node))
                        for index, node in enumerate(self._results) if node in self._inputs]
        # Results kept for the backward pass that the caller gets too.
        self._shared = [(index, self._results.index(self._results[index]))
                        for index in range(self.returned, len(self._results))
                        if self._is_shared(index)]
        others = {index for index, _ in (*self._passed, *self._shared)}
        self._computed = [index for index, node in enumerate(self._results)
                          if index not in others and isinstance(node, torch.fx.Node)]
        self.is_dynamic = any(not isinstance(node.meta.get("val"), torch.Tensor)
                               or has_symbolic_sizes(node.meta["val"]) for node in self._inputs)
        self._is_random = options.Precision.stochastic_rounding or _draws_numbers(graph)
        self._compiled: set = set()  # sizes and numbers for which the executor has a program
        self._wide: set[int] | None = None  # arguments that are narrowed
        self._orders: list = []  # of each tensor among the arguments, None: row-major
        self._forms: list = []  # of each computed result

    @property
    def arguments(self) -> int:
        """The number of arguments."""
        return len(self._inputs)

    @property
    def results(self) -> int:
        """The number of results."""
        return len(self._results)

    def is_constant(self, index: int) -> bool:
        """Whether a result is a Python value, as the missing gradient None is."""
        return not isinstance(self._results[index], torch.fx.Node)

    def is_argument(self, index: int) -> bool:
        """Whether a result is an argument."""
        return any(index == passed for passed, _ in self._passed)

    def _is_shared(self, index: int) -> bool:
        """Whether a result kept for the backward pass is one that the caller gets, also with the
        same dtype and order in memory."""
        node = self._results[index]
        if node not in self._results[:self.returned] or node in self._inputs:
            return False
        value = node.meta.get("val")
        return (isinstance(value, torch.Tensor) and value.dim() != 4
                and narrowed(value.dtype) is value.dtype)

    @untraced
    def __call__(self, arguments: list) -> list:
        if self.program is not None and (results := self.program.run(arguments)) is not None:
            arguments.clear()
            return results
        if torch.is_grad_enabled():
            with torch.no_grad():
                return self(arguments)
        values, own = [None] * len(self._results), arguments.copy()
        if self._wide is None:
            self._wide = {place for place, argument in enumerate(own)
                          if isinstance(argument, torch.Tensor)
                          and narrowed(argument.dtype) is not argument.dtype}
        for place in self._wide:
            own[place] = host_tensor(own[place], self._inputs[place].name)
        for index, source in self._passed:
            is_kept = index >= self.returned and source in self._wide
            values[index] = own[source] if is_kept else arguments[source]
        arguments.clear()
        if self._computed:
            for index, form, value in zip(self._computed, self._forms, self._run(own),
                                          strict=True):
                values[index] = value if form is None else _formed(value, *form)
        for index, other in self._shared:
            values[index] = values[other].detach()
        return values

    def _run(self, arguments: list) -> tuple:
        state = self._drawn_state()
        sizes = tuple(argument.shape if isinstance(argument, torch.Tensor) else argument
                      for argument in arguments) if self.is_dynamic else ()
        if sizes not in self._compiled:
            self._check_limit(sizes)
            from poptorch._base.torch_private import compiling  # importing it takes seconds

            with compiling.compile_lock:  # Dynamo must not trace what a capture replaces in torch
                arguments = [argument.detach() if isinstance(argument, torch.Tensor) else argument
                             for argument in arguments]
                if self._executor is None:
                    self._build(arguments)
                results = self._call_executor(arguments, state)
                self._compiled.add(sizes)
                if not self.is_dynamic:
                    self.program = self._program_of(arguments)
                return results
        return self._call_executor(arguments, state)

    def _check_limit(self, sizes: tuple) -> None:
        limit = self._options.recompilation_limit
        if len(self._compiled) < limit:
            return
        size, known = next((size, known) for size, *known in zip(sizes, *self._compiled)
                           if {size} != set(known))
        known = ", ".join(map(str, sorted(set(known))))
        raise Error(f"[torch.compile] a graph has {limit} programs, as many as "
                    f"Options.recompilation(limit={limit}) allows, and needs one more: the size "
                    f"{size} is not one of {known}. Pad arguments to fewer sizes, or raise the "
                    f"limit.")

    def _drawn_state(self) -> list[torch.Tensor]:
        if not self._is_random:
            return []
        return [torch.tensor(_C.drawn_random_state(), dtype=torch.int32)]

    def _call_executor(self, arguments: list, state: list[torch.Tensor]) -> tuple:
        for place, order in self._orders:
            arguments[place] = arguments[place].permute(order)
        with torch.autocast("cpu", enabled=False):  # the graph has the casts of autocast
            return self._executor(*arguments, *state)

    def _program_of(self, arguments: list[torch.Tensor]) -> "_C.GraphProgram | None":
        """What :attr:`program` is; the arguments are as the executor takes them."""
        found = self._executor._streams_alone()
        if found is None or any(argument.is_complex() for argument in arguments):
            return None
        executable, inputs, outputs = found
        random_stream = inputs.pop() if self._is_random else -1
        if len(outputs) != len(self._computed):
            return None
        orders = {place: _inverse(order) for place, order in self._orders}
        rows = [_form(stream, argument.dtype, node.meta["val"].dtype, argument.shape,
                      orders.get(place))
                for place, (stream, node, argument) in enumerate(zip(inputs, self._inputs,
                                                                     arguments, strict=True))]
        results: list = [None] * len(self._results)
        for index, source in self._passed:
            results[index] = source, index >= self.returned and source in self._wide
        for index, other in self._shared:
            results[index] = (other,)
        for index, form, (position, stream) in zip(self._computed, self._forms, outputs,
                                                   strict=True):
            dtype, (given, order) = torch_dtype(stream.dtype), form or (None, None)
            results[index] = _form(position, dtype, given or dtype, stream.sizes, order)
        names = [node.name for node in self._inputs]
        program = _C.GraphProgram(executable, rows, results, partial(_fitting, names, orders),
                                  profiling._recordings)
        if random_stream >= 0:
            program.draw_into(random_stream)
        return program

    def _build(self, arguments: list) -> None:
        """Makes the executor for arguments with the strides of these."""
        from poptorch._base.torch_private import compiling  # importing it takes seconds

        graph = self._graph.graph
        images = images_of(graph)
        if self._is_random:
            _take_random_state(graph)
        self._orders = []
        for place, (node, argument) in enumerate(zip(self._inputs, arguments, strict=True)):
            if isinstance(argument, torch.Tensor):
                self._take(place, node, argument)
        outputs = []
        for index in self._computed:
            node, order, dtype = self._results[index], None, None
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                order = compiling.dimension_order(value)
                if index >= self.returned and node in images:
                    order = (0, *range(2, value.dim()), 1)
                if order is not None:
                    with graph.inserting_before(graph.output_node()):
                        node = graph.call_function(aten.permute.default, (node, list(order)))
                if index < self.returned and narrowed(value.dtype) is not value.dtype:
                    dtype = value.dtype
            outputs.append(node)
            self._forms.append(None if order is dtype is None
                               else (dtype, order and _inverse(order)))
        graph.output_node().args = (tuple(outputs),)
        self._graph.recompile()
        self._executor = inferenceModel(self._graph, self._options.clone())

    def _take(self, place: int, node: torch.fx.Node, argument: torch.Tensor) -> None:
        """Lets the graph take an argument by the order of its memory, in its present dtype."""
        graph, users, order = self._graph.graph, list(node.users), dims_in_memory(argument)
        taken, traced = node, node.meta.get("val")
        with graph.inserting_after(node):
            if order is not None and order != list(range(len(order))):
                self._orders.append((place, order))
                taken = graph.call_function(aten.permute.default, (node, _inverse(order)))
        if isinstance(traced, torch.Tensor) and traced.dtype is not argument.dtype:
            with graph.inserting_after(taken):
                taken = graph.call_function(aten.to.dtype, (taken, traced.dtype))
        for user in users:
            user.replace_input_with(node, taken)


def _draws_numbers(module: torch.fx.GraphModule) -> bool:
    """Whether the graph, or one that it runs, draws random numbers."""
    return any(node.target is ops.random_state.default
               or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
               for part in module.modules() if isinstance(part, torch.fx.GraphModule)
               for node in part.graph.nodes)


def _take_random_state(graph: torch.fx.Graph) -> None:
    """Lets the graph have one more argument, the random state that it uses."""
    first = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(first):
        state = graph.placeholder("random_state")
        graph.call_function(ops.use_random_state.default, (state,))


def _inverse(order) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _form(stream: int, dtype: torch.dtype, given: torch.dtype, sizes: Sequence[int],
          order: list[int] | None) -> tuple:
    """The row of :class:`_C.GraphProgram` for a tensor that the program has, row-major, with the
    ``sizes``; its graph has it permuted by ``order``."""
    tensor = torch.empty(sizes, device="meta")
    if order is not None:
        tensor = tensor.permute(order)
    return stream, dtype, given, list(tensor.shape), list(tensor.stride())


def _fitting(names: list[str], orders: dict[int, list[int]], place: int, argument: torch.Tensor
             ) -> torch.Tensor:
    """An argument as the form of its row has it."""
    order = orders.get(place)
    if order is None:
        return host_tensor(argument, names[place])
    return host_tensor(argument.permute(_inverse(order)), names[place]).permute(order)


def _formed(tensor: torch.Tensor, dtype: torch.dtype | None, back: list[int] | None
            ) -> torch.Tensor:
    """A result as eager PyTorch has it: the program around it relies on dtype and strides."""
    if dtype is not None:
        tensor = tensor.to(dtype)  # the device narrows 64-bit types
    return tensor if back is None else tensor.permute(back).detach()
