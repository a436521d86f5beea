"""The backend ``"poptorch"`` of torch.compile."""

from collections.abc import Callable, Sequence

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from poptorch._base.torch_private import tracing as private
from poptorch._torch_compile.graph import CompiledGraph
from poptorch._torch_compile.whole_layers import WholeLayers
from poptorch.errors import Error
from poptorch.options import Options
from poptorch.options._options import checked_options

_BATCHES = {"device_iterations": "deviceIterations", "replication_factor": "replicationFactor"}


def backend(graph: torch.fx.GraphModule, inputs: Sequence, *,
            options: Options | None = None) -> Callable:
    """Compiles a graph of torch.compile, and its backward pass if a result requires grad.

    Args:
        graph: what torch.compile traced.
        inputs: its arguments.
        options: how to compile and run; None: the defaults.

    Returns:
        A function of the graph's arguments. Its results have a ``grad_fn`` where eager's do.

    Raises:
        TypeError: ``options`` is not a :class:`poptorch.Options`.
        poptorch.Error: The options split a batch.
    """
    from poptorch._base.torch_private import compiling  # importing it takes seconds

    options = checked(options, "torch.compile")

    def compile_graph(graph: torch.fx.GraphModule, inputs: Sequence) -> Callable:
        return compiling.boxed(CompiledGraph(graph, options))

    def compile_forward(graph: torch.fx.GraphModule, inputs: Sequence) -> Callable:
        return compiling.boxed(CompiledGraph(graph, options, compiling.returned_results()))

    compile_both = compiling.aot_autograd(
        fw_compiler=compile_forward, bw_compiler=compile_graph, inference_compiler=compile_graph,
        partition_fn=compiling.min_cut_rematerialization_partition)
    # What WholeLayers leaves to torch is traced as single operations.
    with WholeLayers(), sdpa_kernel(SDPBackend.MATH), private.without_onednn():
        return compile_both(graph, inputs)


def checked(options: Options | None, where: str) -> Options:
    """A copy of the options for graphs of torch.compile, which are compiled again for new sizes.

    An Error if they split a batch: PyTorch's program, which calls the graph, does not.
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
    return options.recompilation(values=options.recompilation_values, shapes=True,
                                 limit=options.recompilation_limit)
