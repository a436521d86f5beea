"""One graph of torch.compile as a function that runs it on the device."""

from collections.abc import Callable

import torch

from poptorch._base.types import narrowed
from poptorch.models import inferenceModel
from poptorch.options import Options


def compiled(graph: torch.fx.GraphModule, options: Options) -> Callable[[list], list]:
    """A function of the list of a graph's arguments that gives the list of its results.

    The graph is functional: it takes weights as arguments and changes none of its arguments.
    The first call compiles, and so does a call with other sizes.
    """
    from poptorch._base.torch_private import compiling  # importing it takes seconds

    inputs = list(graph.graph.find_nodes(op="placeholder"))
    output = graph.graph.output_node()
    results = list(output.args[0])
    # Arguments that are also results, as tensors that the backward pass needs, stay on the host.
    passed = {index: inputs.index(node) for index, node in enumerate(results) if node in inputs}
    computed = [index for index, node in enumerate(results)
                if index not in passed and isinstance(node, torch.fx.Node)]
    traced = [results[index].meta.get("val") for index in computed]
    forms = [(value.dtype, compiling.dimension_order(value))
             if isinstance(value, torch.Tensor) else None for value in traced]
    output.args = (tuple(results[index] for index in computed),)
    graph.recompile()
    executor = inferenceModel(graph, options.clone()) if computed else None

    def run(arguments: list) -> list:
        own = [argument.detach() if isinstance(argument, torch.Tensor) else argument
               for argument in arguments]
        values = [None] * len(results)
        for index, source in passed.items():
            values[index] = arguments[source]
        if executor is not None:
            for index, form, value in zip(computed, forms, executor(*own), strict=True):
                values[index] = value if form is None else _formed(value, *form)
        arguments.clear()
        return values

    return run


def _formed(tensor: torch.Tensor, dtype: torch.dtype, order: tuple[int, ...] | None
            ) -> torch.Tensor:
    """A result as eager PyTorch has it: the program around it relies on dtype and strides."""
    # Any other difference is a mistake of the trace: it takes the statistics of batch norm for
    # bfloat16 in autocast, and the backward pass needs float32.
    if narrowed(dtype) is tensor.dtype:
        tensor = tensor.to(dtype)
    if order is None:
        return tensor
    back = sorted(range(len(order)), key=order.__getitem__)
    return tensor.permute(order).contiguous().permute(back)
