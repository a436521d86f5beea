"""The values of tensors that ``forward`` leaves in attributes of the module, where no call of the
program has a part in them: tables of positions, masks, what is computed once from a buffer.

They are computed on the host, by the operations that were recorded, in their order. So attributes
are afterwards as eager leaves them, and what ``forward`` decides by one in the next compilation
(``if self.length != x.shape[1]:``) fits the others.
"""

from collections.abc import Mapping

import torch
from torch import fx

from poptorch._base.layout import memory_of
from poptorch._base.torch_private import tracing as private
from poptorch._capture.graph.constant_values import changes, is_repeatable
from poptorch._capture.graph.regions import region
from poptorch._capture.library import tensor_nodes

_ELEMENTS = 1 << 24  # of all tensors together, so that it does not take long


def lasting_value(tensor: torch.Tensor, sources: Mapping[fx.Node, torch.Tensor]):
    """The value that a tensor has when ``forward`` ends.

    Args:
        tensor: one without data, of the capture.
        sources: the values of placeholders that are the same in each call: of constants, and of
            what is not trained.

    Returns:
        A tensor; None where an argument, what is trained or a random number has a part in it,
        where a gradient flows through it, where a source is changed, and for a source itself.
    """
    node = tensor_nodes.node_of(tensor)
    if node is None or node in sources or tensor.requires_grad:
        return None
    needed = _needed(node, sources)
    if needed is None:
        return None
    with private.without_modes(), torch.no_grad():
        values: dict[fx.Node, object] = {}
        for one in needed:
            values[one] = sources[one].detach() if one in sources else _run(one, values)
        return values[node]


def _needed(wanted: fx.Node, sources: Mapping[fx.Node, torch.Tensor]) -> list[fx.Node] | None:
    """The nodes that a value comes from, in their order, with all that write to memory of these;
    None where one of them cannot be run."""
    writers: dict[int, list[fx.Node]] = {}
    for node, memory in changes(wanted.graph):
        writers.setdefault(memory, []).append(node)
    found, left, elements = set(), [wanted], 0
    while left:
        node = left.pop()
        if node in found:
            continue
        found.add(node)
        tensors = _tensors(node)
        elements += sum(tensor.numel() for tensor in tensors)
        if elements > _ELEMENTS or node.target is region:
            return None
        if node in sources:
            if any(memory_of(tensor) in writers for tensor in tensors):
                return None
            continue
        if node.op != "call_function" or not is_repeatable(node.target, may_change=True):
            return None
        left += node.all_input_nodes
        for tensor in tensors:
            left += writers.get(memory_of(tensor), ())
    return [node for node in wanted.graph.nodes if node in found]


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def _run(node: fx.Node, values: dict):
    args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
    return node.target(*args, **kwargs)
