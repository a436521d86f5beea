"""What may differ between the replicas of a program."""

import torch

from poptorch._capture import views
from poptorch._capture.library import ops
from poptorch._capture.regions import nodes_within, region_of
from poptorch._capture.torch_private import OpOverload
from poptorch._translate import rounding
from poptorch.errors import error_at
from poptorch.options import Options

aten = torch.ops.aten

# Of a tensor that they are given they use shape and type alone.
_SHAPE_ALONE = {aten.empty_like, aten.zeros_like, aten.ones_like, aten.full_like, aten.new_empty,
                aten.new_empty_strided, aten.new_zeros, aten.new_ones, aten.new_full}

# Beside those that rounding.py names: they choose among numbers, or make some of the type.
_EXACT = {aten.clamp, aten.clamp_min, aten.clamp_max, aten.copy, aten.fill, aten.max, aten.min,
          aten.ones, aten.scalar_tensor, aten.select_scatter, aten.zeros}

_HALVES = (torch.float16, torch.bfloat16)


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
    updates = [spec for spec in captured.outputs
               if spec.kind == "buffer_update" and spec.name in shared]
    reasons = {"that differ": False}
    if options.Precision.stochastic_rounding:
        reasons["that are rounded by chance (enableStochasticRounding), and so differ"] = True
    for what, is_stochastic in reasons.items():
        differing = _differing(options, grouped, captured, is_stochastic=is_stochastic)
        for spec in updates:
            if spec.node in differing:
                raise error_at(
                    f"[replicationFactor] forward changes the parameter {spec.name} in place by "
                    f"values {what} from replica to replica: {options.replication_factor} replicas "
                    f"would have different weights. Register it as a buffer and call "
                    f"options.broadcastBuffers(False), so that each replica has its own, or change "
                    f"it outside of forward.", spec.node.meta.get("place"),
                    spec.node.meta.get("module", ""))


def _differing(options: Options, grouped: frozenset[str], captured, *, is_stochastic: bool) -> set:
    """The nodes of which each replica may have another value."""
    shared = {spec.name for spec in captured.inputs if spec.kind == "param"} - grouped
    is_same_input = options.input_group_size == options.replication_factor
    placeholders = (node for node in captured.graph.nodes if node.op == "placeholder")
    own = {spec.name for spec in captured.outputs if spec.kind == "buffer_update"} - shared
    differing = {node for node, spec in zip(placeholders, captured.inputs)
                 if spec.kind == "input" and not is_same_input
                 or spec.name in own or spec.name in grouped}
    for node in captured.graph.nodes:
        varies = (not differing.isdisjoint(node.all_input_nodes)
                  or is_stochastic and _is_rounded(node))
        if _has_own(node) or varies and not _is_same(node, options.replication_factor):
            differing.add(node)
    return differing


def _has_own(node) -> bool:
    """Whether each replica has another value of a node, or of one in the region that it runs:
    random numbers, the place of the replica in its group, what functions of the host give."""
    region = region_of(node)
    within = nodes_within(region.graph) if region is not None else ()
    return any("salt" in x.meta
               or x.target in (ops.place_in_group.default, ops.host_call.default)
               for x in (node, *within))


def _is_rounded(node) -> bool:
    """Whether the device may round what a node gives, or one in the region that it runs, to 16
    bits: by chance, each replica for itself."""
    region = region_of(node)
    if region is not None:
        return any(map(_is_rounded, nodes_within(region.graph)))
    target = node.target
    if not isinstance(target, OpOverload) or views.is_view(target) \
            or target.overloadpacket in _EXACT or target.overloadpacket in _SHAPE_ALONE:
        return False
    namespace, _, name = target._schema.name.partition("::")
    if namespace not in ("aten", "poptorch") or not rounding.rounds(name, {}):
        return False
    value = node.meta["val"]
    if target is aten._to_copy.default and node.args[0].meta["val"].dtype is value.dtype:
        return False
    if target is aten.index_put.default and not any(node.args[3:]):  # it does not add
        return False
    return any(isinstance(part, torch.Tensor) and part.dtype in _HALVES
               for part in (value if isinstance(value, (tuple, list)) else [value]))


def _is_same(node, replicas: int) -> bool:
    """Whether a node has one value in all replicas, whatever its operands have: it is the sum of
    all of them, or takes nothing but their shape."""
    if node.target is ops.all_reduce.default:
        return node.args[1] == replicas
    return isinstance(node.target, OpOverload) and node.target.overloadpacket in _SHAPE_ALONE
