"""Captures of what is a graph already, and no module that a user wrote."""

import torch

from poptorch._capture.capturing import capture
from poptorch._capture.graph.captured import Captured
from poptorch.errors import Error


def capture_graph(graph_module: torch.fx.GraphModule, example_inputs) -> Captured:
    """Captures a graph as ``torch.compile`` gives it to a backend, for inference.

    Args:
        graph_module: the graph; its parameters are inputs, or attributes.
        example_inputs: a tensor for each input, of the sizes and dtypes of each call.

    Returns:
        The captured graph; of its inputs those of kind ``"input"`` are the graph's, in order.

    Raises:
        poptorch.Error: An input is a number or a size, or has a size that is not known yet.
    """
    names = [node.target for node in graph_module.graph.nodes if node.op == "placeholder"]
    if len(names) != len(example_inputs):
        raise Error(f"[capture] the graph has {len(names)} inputs ({', '.join(names)}), but got "
                    f"{len(example_inputs)} example inputs. Give one for each.")
    for name, value in zip(names, example_inputs):
        if not isinstance(value, torch.Tensor):
            raise Error(f"[capture] input {name} of the graph is a {type(value).__name__}, "
                        f"{value}; inputs are tensors, and numbers and sizes are compiled in. Call "
                        f"torch.compile with dynamic=False.")
        if any(isinstance(size, torch.SymInt) for size in value.shape):
            raise Error(f"[capture] input {name} of the graph has the sizes {list(value.shape)}, "
                        f"not all of which are numbers; sizes are compiled in. Call torch.compile "
                        f"with dynamic=False.")
    return capture(graph_module, tuple(example_inputs), training=False)
