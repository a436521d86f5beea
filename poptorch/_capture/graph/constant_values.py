"""Values that are known while a program is captured: those computed from constants alone."""

import operator
from collections.abc import Iterator

import torch
from torch import fx

from poptorch._base.layout import memory_of
from poptorch._base.pytree.structure import map_only
from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._capture.graph.views import written_by
from poptorch._capture.library import tensor_nodes

_ELEMENTS = 1 << 24  # of a tensor, so that it does not take long


class _Unknown(Exception):
    """The value of a tensor is not known."""


class _Changed(_Unknown):
    """A tensor was changed in place, or a view of it."""


def known_value(recorder, tensor: torch.Tensor,
                states: dict[fx.Node, torch.Tensor] | None = None,
                is_noted: bool = True) -> torch.Tensor | None:
    """The value of a tensor that no input, parameter or buffer has a part in; None for others.
    Those of ``states``, parameters and buffers with their values, may have a part in it, and are
    then noted as read unless ``is_noted`` is False."""
    node = tensor_nodes.node_of(tensor)
    if node is None:
        if fake_tensors.is_fake(tensor):
            return None
        node = recorder.node_of(tensor)
    # What a region's own operations have made may be changed after it, in the graph around it.
    changed = changed_memory(node.graph) | recorder.changed.keys()
    try:
        with private.without_modes(), torch.no_grad():
            states = {state: value.detach() for state, value in (states or {}).items()
                      if memory_of(state.meta["val"]) not in changed}
            values = dict(states)
            try:
                value = _value(recorder, node, changed, values)
                computed = [one for one in values if one not in states]
            except _Changed:
                computed = _history(recorder, node, states)
                value = _replayed(recorder, node, states, computed)
            used = {node, *(part for one in computed for part in one.all_input_nodes)}
            for state in used & states.keys() if is_noted else ():
                recorder.values.note_state(state)
            return value
    except _Unknown:
        return None


def with_known_values(recorder, given, states: dict[fx.Node, torch.Tensor] | None = None):
    """Arguments with the values of those tensors in place of them that are known, see
    :func:`known_value`."""
    def valued(tensor: torch.Tensor) -> torch.Tensor:
        if not fake_tensors.is_fake(tensor):
            return tensor
        known = known_value(recorder, tensor, states)
        return tensor if known is None else known

    return map_only(torch.Tensor, valued, given)


def real_like(recorder, tensor: torch.Tensor, value: int) -> torch.Tensor:
    """A real tensor that looks at its memory as ``tensor`` does: of its integers where they are
    known, which may be sizes, else of equal values."""
    known = None if tensor.is_floating_point() else known_value(recorder, tensor)
    if known is not None:
        return known
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).fill_(value)


def is_known_zero(recorder, tensor: torch.Tensor) -> bool:
    """Whether a tensor is known to have no element but 0."""
    value = known_value(recorder, tensor)
    with private.without_modes():
        return value is not None and not value.any()


def changes(graph: fx.Graph, since: fx.Node | None = None) -> Iterator[tuple[fx.Node, int]]:
    """The operations that change tensors in place, those after a node or all, each with the memory
    of every such tensor; the last ones first."""
    for node in reversed(graph.nodes):
        if node is since:
            return
        yield from ((node, memory_of(part.meta["val"])) for part in written_by(node))


def changed_memory(graph: fx.Graph, since: fx.Node | None = None) -> set[int]:
    """The memory of all tensors that operations change in place, those after a node or all."""
    return {memory for _, memory in changes(graph, since)}


def _value(recorder, node: fx.Node, changed: set[int], values: dict):
    if node in values:
        return values[node]
    val = node.meta.get("val")
    if isinstance(val, torch.Tensor) and val.numel() > _ELEMENTS:
        raise _Unknown
    if isinstance(val, torch.Tensor) and memory_of(val) in changed:
        raise _Changed
    if node in recorder.constants:
        value = _constant(recorder, node)
    elif node.op != "call_function" or not is_repeatable(node.target):
        raise _Unknown
    else:
        args, kwargs = fx.map_arg((node.args, node.kwargs),
                                  lambda n: _value(recorder, n, changed, values))
        value = node.target(*args, **kwargs)
    values[node] = value
    return value


def _constant(recorder, node: fx.Node) -> torch.Tensor:
    if "fresh" not in node.meta:
        recorder.values.note(recorder.constants[node])
    return recorder.constant(node).detach()


def _replayed(recorder, node: fx.Node, states: dict, history: list[fx.Node]) -> torch.Tensor:
    """The value after all changes: what it depends on is computed once more, in memory that views
    share as in ``forward``."""
    values = {}
    for each in history:
        if each in states:
            value = states[each].clone()
        elif each in recorder.constants:
            value = _constant(recorder, each).clone()
        else:
            value = each.target(*fx.map_arg(each.args, values.get),
                                **fx.map_arg(each.kwargs, values.get))
        val = each.meta["val"]
        if isinstance(val, torch.Tensor) and (val.shape, val.dtype, val.stride()) \
                != (value.shape, value.dtype, value.stride()):
            raise _Unknown
        values[each] = value
    return values[node].clone()


def _history(recorder, node: fx.Node, states: dict) -> list[fx.Node]:
    """The operations that a value depends on, in their order: also those that change its memory."""
    if recorder.is_in_region() or node.graph is not recorder.graph:
        raise _Unknown  # a loop repeats changes
    changing = {}
    for each, memory in changes(node.graph):
        changing.setdefault(each, set()).add(memory)
    wanted, memories, found = {node}, {memory_of(node.meta["val"])}, []
    for each in reversed(node.graph.nodes):
        if each not in wanted and memories.isdisjoint(changing.get(each, ())):
            continue
        val = each.meta.get("val")
        is_operation = each.op == "call_function" and is_repeatable(each.target, may_change=True)
        # A tensor of the user's that is changed has another value in the next call.
        is_constant = each in states or each in recorder.constants and (
            "fresh" in each.meta or memory_of(val) not in recorder.changed)
        if not is_operation and not is_constant or "picked" in each.meta \
                or isinstance(val, torch.Tensor) and val.numel() > _ELEMENTS:
            raise _Unknown
        found.append(each)
        wanted.update(each.all_input_nodes)
        memories.update(memory_of(n.meta["val"]) for n in each.all_input_nodes
                        if isinstance(n.meta.get("val"), torch.Tensor))
    if memories & recorder.changed.keys() - set().union(*changing.values()):
        raise _Unknown
    return found[::-1]


def is_repeatable(target, may_change: bool = False) -> bool:
    """Whether an operation computes the same again, from its operands alone; with ``may_change``
    also one that changes them."""
    if target is operator.getitem:
        return True
    return isinstance(target, private.OpOverload) and target.namespace == "aten" \
        and (may_change or not target._schema.is_mutable) \
        and torch.Tag.nondeterministic_seeded not in target.tags


def same_value(one: fx.Node, other: fx.Node, changed: set[int]) -> bool:
    """Whether two nodes compute the same from the same values, in memory that is not changed."""
    if any(isinstance(n.meta.get("val"), torch.Tensor) and memory_of(n.meta["val"]) in changed
           for n in (one, other)):
        return False
    if one is other:
        return True
    return one.op == other.op == "call_function" and one.target is other.target \
        and is_repeatable(one.target) \
        and _same((one.args, one.kwargs), (other.args, other.kwargs), changed)


def _same(one, other, changed: set[int]) -> bool:
    if isinstance(one, fx.Node) and isinstance(other, fx.Node):
        return same_value(one, other, changed)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_same(a, b, changed) for a, b in zip(one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k], changed) for k in one)
    return type(one) is type(other) and one == other
