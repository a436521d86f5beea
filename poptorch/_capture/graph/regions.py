"""Regions: graphs inside of a graph, which are the bodies of loops.

    %r = region(%x, %w)                    with the graph
        %x = placeholder
        %w = placeholder
        %m = mm(%x, %w)
        return %m
    %m = getitem(%r, 0)

Nodes of one graph never have operands of another: a region captures a value from the graph around
it, a parameter or constant too, by a placeholder and an operand of its node. Its first captures are
the values that the loop carries: in the first round the operands of the node, then what the round
before gave. Its results are what the last round gave.
"""

from dataclasses import dataclass

from torch import fx

from poptorch._capture.library import without_gradient  # noqa: F401  (declares operations)
from poptorch._capture.library.layers import ops

_OF_EACH_NODE = ("val", "place", "module", "annotations", "backward", "recompute")


@dataclass(frozen=True)
class Rounds:
    """How often a loop runs its body, which carries values: ``count`` times, or as long as the
    first carried value, a bool, is true. The carried value ``counter`` is the number of the
    round."""

    carried: int
    count: int | None = None
    counter: int | None = None


def region(*captures):
    """Stands in a graph where a region runs; ``meta["region"]`` of the node is the region."""


def region_of(node: fx.Node) -> "Region | None":
    """The region that a node runs; None for other nodes."""
    return node.meta["region"] if node.target is region else None


class Region:
    """One region, or the graph of a whole capture, for which ``node`` is None. ``rounds`` is None
    while a body is traced that is pasted into loops afterwards."""

    def __init__(self, node: fx.Node | None = None, rounds: Rounds | None = None):
        self.node, self.graph = node, fx.Graph()
        self.rounds = rounds
        self._captures: dict[fx.Node, fx.Node] = {}
        self._inputs_end = self.graph.create_node("call_function", _end_of_inputs, (), {})

    def placeholder(self, name: str, meta: dict) -> fx.Node:
        """Adds an input of the graph."""
        with self.graph.inserting_before(self._inputs_end):
            node = self.graph.placeholder(name)
        node.target = node.name  # the name as an identifier, without dots
        node.meta = meta
        return node

    def finish_inputs(self) -> None:
        """Ends the recording."""
        self.graph.erase_node(self._inputs_end)

    def capture(self, outer: fx.Node) -> fx.Node:
        """The placeholder that stands for a node of the graph around."""
        inner = self._captures.get(outer)
        if inner is None:
            meta = {**{key: outer.meta[key] for key in _OF_EACH_NODE}, "stands_for": outer}
            inner = self._captures[outer] = self.placeholder(outer.name, meta)
            self.node.args = (*self.node.args, outer)
        return inner

    def captured(self) -> dict[fx.Node, fx.Node]:
        """What is captured: node of the graph around -> placeholder."""
        return dict(self._captures)

    def copy(self, node: fx.Node) -> "Region":
        """The same for another node; of a region that is finished."""
        twin, new = Region(node, self.rounds), {}
        twin.finish_inputs()
        for old in self.graph.nodes:
            new[old] = copied(old, twin.graph, new)
        return twin

    def finish(self, results: list[fx.Node]) -> None:
        """Ends the graph with the nodes whose values are the results."""
        self.graph.output(tuple(results))
        self.node.meta["val"] = tuple(node.meta["val"] for node in results)

    def prune(self) -> None:
        """Removes operations and captures that are not used. What loops carry stays."""
        prune(self.graph)
        kept = []
        for number, (inner, outer) in enumerate(zip(placeholders(self.graph), self.node.args)):
            if inner.users or number < self.rounds.carried:
                kept.append(outer)
            else:
                self.graph.erase_node(inner)
        self.node.args = tuple(kept)


def copied(node: fx.Node, graph: fx.Graph, new: dict[fx.Node, fx.Node]) -> fx.Node:
    """Appends a copy of a node to a graph, with a copy of the region that it runs; ``new`` has what
    stands there for its operands."""
    twin = graph.node_copy(node, new.__getitem__)
    if region_of(node) is not None:
        twin.meta["region"] = region_of(node).copy(twin)
    return twin


def _end_of_inputs():
    """Stands in a graph between placeholders and operations while it is recorded."""


def placeholders(graph: fx.Graph) -> list[fx.Node]:
    """The inputs of a graph."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def prune(graph: fx.Graph) -> None:
    """Removes operations and parts of regions that are not used. Marks stay."""
    for node in reversed(graph.nodes):
        if node.op != "call_function":
            continue
        if not node.users:
            if node.target not in (ops.checkpoint.default, ops.use_random_state.default):
                graph.erase_node(node)
        elif region_of(node) is not None:
            region_of(node).prune()


def nodes_within(graph: fx.Graph):
    """The nodes of a graph, and of the regions in it."""
    for node in graph.nodes:
        yield node
        if region_of(node) is not None:
            yield from nodes_within(region_of(node).graph)
