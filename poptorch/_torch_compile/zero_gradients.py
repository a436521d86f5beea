"""Backward graphs without gradients that are zero: those of results that the loss does not use.

AOTAutograd's graphs take such a gradient as a tensor of zeros, and add it to others.
"""

import copy

import torch
from torch import fx

aten = torch.ops.aten

# They give zeros where their operand is zeros.
_KEEP = frozenset({aten.view, aten.reshape, aten._unsafe_view, aten.permute, aten.t, aten.transpose,
                   aten.unsqueeze, aten.squeeze, aten.expand, aten.alias, aten.detach, aten.clone,
                   aten._to_copy})


def without_gradients(module: fx.GraphModule, places: set[int]) -> fx.GraphModule:
    """A copy of a graph that does not take the arguments with the numbers ``places``: zeros."""
    graph = copy.deepcopy(module.graph)
    given = list(graph.find_nodes(op="placeholder"))
    zeros = {given[place] for place in places}
    for node in list(graph.nodes):
        if node.op != "call_function" or not any(n in zeros for n in node.all_input_nodes):
            continue
        if getattr(node.target, "overloadpacket", None) in _KEEP:
            zeros.add(node)
        elif (other := _other_summand(node, zeros)) is not None:
            node.replace_all_uses_with(other)
            graph.erase_node(node)
    for node in zeros:
        if any(user not in zeros for user in node.users):
            _replace(graph, node, zeros)
    for node in reversed(list(graph.nodes)):
        if node in zeros:
            graph.erase_node(node)
    return fx.GraphModule(module, graph)


def _other_summand(node: fx.Node, zeros: set[fx.Node]) -> fx.Node | None:
    """What a sum of zeros and a tensor of the sum's type is."""
    if node.target is not aten.add.Tensor or len(node.args) != 2 or node.kwargs:
        return None
    one, other = node.args
    if one not in zeros:
        one, other = other, one
    if not isinstance(other, fx.Node):
        return None
    kept, total = other.meta["val"], node.meta["val"]
    is_same = isinstance(kept, torch.Tensor) and (kept.shape, kept.dtype, kept.stride()) == (
        total.shape, total.dtype, total.stride())
    return other if is_same else None


def _replace(graph: fx.Graph, node: fx.Node, zeros: set[fx.Node]) -> None:
    """Lets users of a node that is erased use zeros that the graph makes."""
    value = node.meta["val"]
    with graph.inserting_before(next(n for n in graph.nodes if n.op != "placeholder")):
        made = graph.call_function(aten.full.default, (list(value.shape), 0),
                                   {"dtype": value.dtype, "device": value.device})
    made.meta["val"] = value
    node.replace_all_uses_with(made, delete_user_cb=lambda user: user not in zeros)
