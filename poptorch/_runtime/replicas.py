"""What may differ between the replicas of a program."""

import torch

from poptorch._capture.library import ops
from poptorch._capture.regions import nodes_within, region_of
from poptorch._capture.torch_private import OpOverload
from poptorch.errors import error_at
from poptorch.options import Options

aten = torch.ops.aten

# Of a tensor that they are given they use shape and type alone.
_SHAPE_ALONE = {aten.empty_like, aten.zeros_like, aten.ones_like, aten.full_like, aten.new_empty,
                aten.new_empty_strided, aten.new_zeros, aten.new_ones, aten.new_full}


def check_parameters(options: Options, grouped: frozenset[str], captured) -> None:
    """Checks that replicas that share a parameter go on having the same value of it.

    Args:
        options: resolved options.
        grouped: paths of the parameters of which each group of replicas has its own.
        captured: what capture recorded.

    Raises:
        poptorch.Error: ``forward`` changes one by what differs from replica to replica.
    """
    if options.replication_factor == 1:
        return
    shared = {spec.name for spec in captured.inputs if spec.kind == "param"} - grouped
    is_same_input = options.input_group_size == options.replication_factor
    placeholders = (node for node in captured.graph.nodes if node.op == "placeholder")
    updates = [spec for spec in captured.outputs if spec.kind == "buffer_update"]
    own = {spec.name for spec in updates} - shared
    differing = {node for node, spec in zip(placeholders, captured.inputs)
                 if spec.kind == "input" and not is_same_input
                 or spec.name in own or spec.name in grouped}
    for node in captured.graph.nodes:
        takes_differing = not differing.isdisjoint(node.all_input_nodes)
        if _has_own(node) or takes_differing and not _is_same(node, options.replication_factor):
            differing.add(node)
    for spec in updates:
        if spec.name in shared and spec.node in differing:
            raise error_at(
                f"[replicationFactor] forward changes the parameter {spec.name} in place by values "
                f"that differ from replica to replica: {options.replication_factor} replicas would "
                f"have different weights. Register it as a buffer and call "
                f"options.broadcastBuffers(False), so that each replica has its own, or change it "
                f"outside of forward.", spec.node.meta.get("place"),
                spec.node.meta.get("module", ""))


def _has_own(node) -> bool:
    """Whether each replica has another value of a node, or of one in the region that it runs:
    random numbers, the place of the replica in its group."""
    region = region_of(node)
    within = nodes_within(region.graph) if region is not None else ()
    return any("salt" in x.meta or x.target is ops.place_in_group.default
               for x in (node, *within))


def _is_same(node, replicas: int) -> bool:
    """Whether a node has one value in all replicas, whatever its operands have: it is the sum of
    all of them, or takes nothing but their shape."""
    if node.target is ops.all_reduce.default:
        return node.args[1] == replicas
    return isinstance(node.target, OpOverload) and node.target.overloadpacket in _SHAPE_ALONE
