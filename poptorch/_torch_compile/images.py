"""Which tensors of a graph are images of convolutions: the device has them channels-last."""

import operator

import torch

aten = torch.ops.aten
ops = torch.ops.poptorch

# They give an image where they are given one.
_KEEP = frozenset({ops.batch_norm, ops.batch_norm_inference, ops.dropout,
                   aten.max_pool2d_with_indices, aten.avg_pool2d, aten.alias, aten.detach})


def images_of(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The nodes of a graph whose values are images ``[batch, channels, height, width]`` that a
    convolution gives, or element-wise operations, norms and poolings of such images."""
    found: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.op == "call_function" and _is_image(node, found):
            found.add(node)
    return found


def _is_image(node: torch.fx.Node, found: set) -> bool:
    if node.target is aten.convolution.default:
        return node.meta["val"].dim() == 4
    if not any(argument in found for argument in node.all_input_nodes):
        return False
    if node.target is operator.getitem:
        value = node.meta["val"]
        return isinstance(value, torch.Tensor) and value.dim() == 4
    packet = getattr(node.target, "overloadpacket", None)
    return packet in _KEEP or torch.Tag.pointwise in getattr(node.target, "tags", ())
