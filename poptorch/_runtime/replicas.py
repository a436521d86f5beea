"""What may differ between the replicas of a program."""

import torch

from poptorch._base.torch_private.tracing import OpOverload
from poptorch._capture.graph import views
from poptorch._capture.graph.regions import nodes_within, region_of
from poptorch._capture.library.layers import ops
from poptorch._translate import rounding
from poptorch._translate.replica_groups import ReplicaGroups
from poptorch.enums import CommGroupType
from poptorch.errors import Error, error_at
from poptorch.options import Options

aten = torch.ops.aten

# Of a tensor that they are given they use shape and type alone.
_SHAPE_ALONE = {aten.empty_like, aten.zeros_like, aten.ones_like, aten.full_like, aten.new_empty,
                aten.new_empty_strided, aten.new_zeros, aten.new_ones, aten.new_full}

# Beside those that rounding.py names: they choose among numbers, or make some of the type.
_EXACT = {aten.clamp, aten.clamp_min, aten.clamp_max, aten.copy, aten.fill, aten.max, aten.min,
          aten.ones, aten.scalar_tensor, aten.select_scatter, aten.zeros}

_HALVES = (torch.float16, torch.bfloat16)


def check_parameters(options: Options, grouped: dict[str, ReplicaGroups], captured) -> None:
    """Raises an Error if ``forward`` changes a shared parameter by what differs in replicas."""
    replicas = options.replication_factor
    all_of_them = ReplicaGroups(replicas, replicas)
    parameters = {spec.name: grouped.get(spec.name, all_of_them) for spec in captured.inputs
                  if spec.kind == "param"}
    updates = [spec for spec in captured.outputs if spec.kind == "buffer_update"
               and spec.name in parameters and parameters[spec.name].size > 1]
    reasons = {"that differ": False}
    if options.Precision.stochastic_rounding:
        reasons["that are rounded by chance (enableStochasticRounding), and so differ"] = True
    for what, is_stochastic in reasons.items():
        differing = {groups: _differing(options, parameters, groups, captured,
                                        is_stochastic=is_stochastic)
                     for groups in {parameters[spec.name] for spec in updates}}
        for spec in updates:
            groups = parameters[spec.name]
            if spec.node in differing[groups]:
                raise _differs(spec, groups, what)


def _differs(spec, groups: ReplicaGroups, what: str) -> Error:
    where, of = "replicationFactor", ""
    if groups.count > 1:
        where, of = "replicaGrouping", " of a group"
    return error_at(
        f"[{where}] forward changes the parameter {spec.name} in place by values {what} from "
        f"replica to replica: {groups.size} replicas{of} would have different weights. Register it "
        f"as a buffer and call options.broadcastBuffers(False), so that each replica has its own, "
        f"or change it outside of forward.", spec.node.meta.get("place"),
        spec.node.meta.get("module", ""))


def _differing(options: Options, parameters: dict[str, ReplicaGroups], groups: ReplicaGroups,
               captured, *, is_stochastic: bool) -> set:
    """The nodes whose values may differ between replicas of one group."""
    read_by = ReplicaGroups(options.replication_factor, options.input_group_size,
                            options.input_group_type is CommGroupType.Orthogonal)
    is_same_input = groups.are_within(read_by)
    other = {name for name, own in parameters.items() if not groups.are_within(own)}
    placeholders = (node for node in captured.graph.nodes if node.op == "placeholder")
    own = {spec.name for spec in captured.outputs if spec.kind == "buffer_update"}
    differing = {node for node, spec in zip(placeholders, captured.inputs)
                 if spec.kind == "input" and not is_same_input
                 or spec.name in own - parameters.keys() or spec.name in other}
    for node in captured.graph.nodes:
        varies = (not differing.isdisjoint(node.all_input_nodes)
                  or is_stochastic and _is_rounded(node))
        if _has_own(node) or varies and not _is_same(node, groups):
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


def _is_same(node, groups: ReplicaGroups) -> bool:
    """Whether a node has one value in all replicas of a group, whatever its operands have: it is
    the sum of all of them, or takes nothing but their shape."""
    if node.target is ops.all_reduce.default:
        _, size, is_orthogonal = node.args
        return groups.are_within(ReplicaGroups(groups.replicas, size, is_orthogonal))
    return isinstance(node.target, OpOverload) and node.target.overloadpacket in _SHAPE_ALONE
