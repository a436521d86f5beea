"""What forward computes up to its checkpoints is computed again in the backward pass.

    %a = sin(%x)                        %a = sin(%x)
    %b = cos(%a)                        %b = cos(%a)
    checkpoint(%b)                      %c = exp(%b)
    %c = exp(%b)                  =>    ...
    ...                                 %g1 = mul(%g, %c)
    %g1 = mul(%g, %c)                   %a2 = sin(%x)          recompute=1
    %g2 = mul(%g1, sin(%a))             %g2 = mul(%g1, sin(%a2))

Kept are: what is marked; inputs, parameters and buffers; what goes from one block to another, since
a stage keeps its inputs; and what must not be computed twice, as operators of other libraries. All
else that a mark depends on is computed again where the backward pass first needs it, by the same
operations: the bits are the same. What comes behind the last mark is left alone: the backward pass
begins there, and would need it at once.
"""

import bisect
import operator
from dataclasses import replace

from torch import fx

from poptorch._capture.graph import views
from poptorch._capture.library.layers import ops
from poptorch._translate.nodes import rows_by_aten

_MARK = ops.checkpoint.default
# Operations of ours that have a rule and no row, and no effect.
_PURE = frozenset({"poptorch::elements", "poptorch::elements_scatter",
                   "poptorch::serialized_matmul"})


def recomputed(captured):
    """A captured program without marks, in which the backward pass computes values again."""
    marks = [node for node in captured.graph.nodes if node.target is _MARK]
    if not marks:
        return captured
    return _Recomputation(captured, marks).result


class _Recomputation:
    """The state of one rewriting; ``result`` is the new captured program."""

    def __init__(self, captured, marks: list[fx.Node]):
        self._order = {node: place for place, node in enumerate(captured.graph.nodes)}
        self._marks = [self._order[mark] for mark in marks]
        self._marked = {kept for mark in marks for kept in _memory_of(mark.args[0])}
        self._dropped = self._find_dropped(marks)
        self._first = 1 + max(node.meta.get("recompute", 0) for node in self._order)
        self._graph = fx.Graph()
        self._new: dict[fx.Node, fx.Node] = {}
        self._again: dict[fx.Node, fx.Node] = {}
        for node in captured.graph.nodes:
            if node.target is not _MARK:
                self._copy(node)
        self.result = replace(captured, graph=self._graph, outputs=[
            replace(spec, node=self._new[spec.node]) for spec in captured.outputs])

    def _find_dropped(self, marks: list[fx.Node]) -> set[fx.Node]:
        """What marks depend on and is not kept."""
        dropped, seen = set(), set()
        todo = [mark.args[0] for mark in marks]
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            todo += node.all_input_nodes
            if self._may_drop(node):
                dropped.add(node)
        # What computes one result again has the others too.
        results = {user for node in dropped for user in node.users
                   if user.target is operator.getitem}
        return dropped | set(filter(self._may_drop, results))

    def _may_drop(self, node: fx.Node) -> bool:
        return node not in self._marked and _may_repeat(node) and not _leaves_block(node)

    def _copy(self, node: fx.Node) -> None:
        """Adds a node to the new graph; one of the backward pass gets values computed again."""
        is_late = node.op == "call_function" and node.meta["backward"]
        value = self._late if is_late else self._new.__getitem__
        copy = self._new[node] = self._graph.node_copy(node, value)
        if node in self._marked and node.op == "call_function":
            copy.meta = {**copy.meta, "checkpoint": True}

    def _late(self, node: fx.Node) -> fx.Node:
        """What the backward pass reads in the place of a node."""
        if node not in self._dropped:
            return self._new[node]
        needed, todo = set(), [node]
        while todo:
            wanted = todo.pop()
            if wanted in self._dropped and wanted not in self._again and wanted not in needed:
                needed.add(wanted)
                todo += wanted.all_input_nodes
        for old in sorted(needed, key=self._order.__getitem__):
            copy = self._graph.node_copy(
                old, lambda source: self._again.get(source) or self._new[source])
            part = bisect.bisect_left(self._marks, self._order[old])
            copy.meta = {**copy.meta, "backward": True, "recompute": self._first + part}
            self._again[old] = copy
        return self._again[node]


def _memory_of(node: fx.Node) -> list[fx.Node]:
    """A node, those that it is a view of, and the operation with several results that it is a
    result of: all of them are kept with it."""
    found = [node]
    while node.op == "call_function" and (
            views.is_view(node.target) or node.target is operator.getitem):
        node = node.args[0]
        found.append(node)
    return found


def _may_repeat(node: fx.Node) -> bool:
    """Whether an operation gives the same once more, and does nothing else."""
    if node.op != "call_function" or node.meta["backward"]:
        return False
    if node.target is operator.getitem:
        return _may_repeat(node.args[0])
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.name.startswith("poptorch::"):
        row = None if schema is None else rows_by_aten().get(schema.name)
        return schema is not None and (
            schema.name in _PURE or row is not None and not row["effects"])
    return schema.name.startswith("aten::")


def _leaves_block(node: fx.Node) -> bool:
    """Whether the forward pass reads a value in another block than it is computed in."""
    own = _block(node)
    return any(_block(user) != own for user in node.users
               if user.op == "call_function" and not user.meta["backward"])


def _block(node: fx.Node):
    use = node.meta["annotations"].get("block")
    return use and use.user_id
