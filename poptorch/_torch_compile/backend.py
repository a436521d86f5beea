"""The backend ``"poptorch"`` of torch.compile."""

from collections.abc import Callable, Sequence

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from poptorch._base.torch_private import tracing as private
from poptorch._torch_compile.graph import CompiledGraph
from poptorch._torch_compile.whole_layers import WholeLayers
from poptorch._torch_compile.zero_gradients import without_gradients
from poptorch.errors import Error
from poptorch.options import Options
from poptorch.options._options import checked_options

_BATCHES = {"device_iterations": "deviceIterations", "replication_factor": "replicationFactor"}


def backend(graph: torch.fx.GraphModule, inputs: Sequence, *,
            options: Options | dict | None = None, mode: str | None = None) -> Callable:
    """Compiles a graph of torch.compile, and its backward pass if a result requires grad.

    Args:
        graph: what torch.compile traced.
        inputs: its arguments.
        options: how to compile and run: a :class:`poptorch.Options`, or a dict of the names that
            :meth:`poptorch.Options.fromDict` takes. None: the defaults.
        mode: not supported: it chooses settings of inductor.

    Returns:
        A function of the graph's arguments. Its results have a ``grad_fn`` where eager's do.

    Raises:
        TypeError: ``options`` is not a :class:`poptorch.Options` or a dict.
        ValueError: A name in the dict is not an option.
        poptorch.Error: The options split a batch or set a seed, or a mode is given.
    """
    if mode is not None:
        raise Error(f"[torch.compile] mode={mode!r} is not supported: it chooses settings of "
                    f"inductor. Leave mode out, and pass a poptorch.Options as options.")
    if isinstance(options, dict):
        options = Options.fromDict(options)
    from poptorch._base.torch_private import compiling  # importing it takes seconds
    from poptorch._torch_compile.passes import Passes

    options, passes = checked(options, "torch.compile"), Passes()

    def compile_forward(graph: torch.fx.GraphModule, inputs: Sequence) -> Callable:
        passes.metadata, passes.is_differentiable = compiling.metadata(), True
        passes.forward = CompiledGraph(graph, options, passes.metadata.num_forward_returns)
        return compiling.boxed(passes.forward)

    def compile_backward(graph: torch.fx.GraphModule, inputs: Sequence) -> Callable:
        def make(zeros: set[int]) -> CompiledGraph:
            return CompiledGraph(without_gradients(graph, zeros), options)

        passes.make_backward, passes.backward = make, make(set())
        return compiling.boxed(passes.backward)

    def compile_only(graph: torch.fx.GraphModule, inputs: Sequence) -> Callable:
        passes.metadata, passes.forward = compiling.metadata(), CompiledGraph(graph, options)
        return compiling.boxed(passes.forward)

    compile_both = compiling.aot_autograd(
        fw_compiler=compile_forward, bw_compiler=compile_backward, inference_compiler=compile_only,
        partition_fn=compiling.min_cut_rematerialization_partition,
        decompositions={compiling.multiply_add: lambda a, b, c: a * b + c})
    # What WholeLayers leaves to torch is traced as single operations.
    with WholeLayers(), sdpa_kernel(SDPBackend.MATH), private.without_onednn(), \
            compiling.backward_at_once():
        compiled = compile_both(graph, inputs)
    return passes.direct(len(inputs)) or compiled


def checked(options: Options | None, where: str) -> Options:
    """A copy of the options for graphs of torch.compile, which are compiled again for new sizes.

    An Error if they split a batch or set a seed: PyTorch's program, which calls the graph, does.
    """
    options = checked_options(Options() if options is None else options, where).clone()
    for name, setter in _BATCHES.items():
        if (value := getattr(options, name)) != 1:
            raise Error(f"[{where}] expected {setter}(1), got {setter}({value}): a compiled part "
                        f"of an eager program runs one batch in each call. Leave {setter} out, or "
                        f"use poptorch.trainingModel or poptorch.inferenceModel.")
    if options.Training.gradient_accumulation != 1:
        raise Error(f"[{where}] expected gradientAccumulation(1), got gradientAccumulation("
                    f"{options.Training.gradient_accumulation}): gradients add up in .grad. Call "
                    f"backward() several times before optimizer.step() instead.")
    if options.random_seed is not None:
        raise Error(f"[{where}] randomSeed({options.random_seed}) is not supported: each call "
                    f"takes a seed from torch's generator. Leave randomSeed out, and call "
                    f"torch.manual_seed({options.random_seed}).")
    return options.recompilation(values=options.recompilation_values, shapes=True,
                                 limit=options.recompilation_limit)
