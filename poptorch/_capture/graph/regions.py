"""Regions: graphs inside of a graph.

    %r = region(%x, %w)                    with the graph
        %x = placeholder
        %w = placeholder
        %m = mm(%x, %w)
        return %m
    %m = getitem(%r, 0)

A region's graph is closed: what it takes from the graph around it is captured, by a placeholder
and an operand of the region's node, parameters and constants too; what the graph around it takes
from it is a result. Nodes of one graph never have operands of another.

A region that has rounds is the body of a loop. Its first captures are the carried values: in the
first round they are the operands of the node, then what the round before gave. Its results are what
the last round gave, and nothing else may be taken from it.
"""

import operator
from dataclasses import dataclass

from torch import fx

from poptorch._base.layout import memory_of
from poptorch._capture.library import without_gradient  # noqa: F401  (declares operations)
from poptorch._capture.library.layers import ops

_OF_EACH_NODE = ("val", "place", "module", "annotations", "backward", "recompute")


@dataclass(frozen=True)
class Rounds:
    """How often a loop runs its body.

    Attributes:
        carried: how many values it carries.
        count: how often; None: as long as the first carried value, a bool, is true.
        counter: the carried value that is the number of the round, if there is one.
    """

    carried: int
    count: int | None = None
    counter: int | None = None


def region(*captures):
    """Stands in a graph where a region runs; ``meta["region"]`` of the node is the region."""


def region_of(node: fx.Node) -> "Region | None":
    """The region that a node runs; None for other nodes."""
    return node.meta["region"] if node.target is region else None


class Region:
    """One region, or the graph of a whole capture.

    Attributes:
        node: runs the region in the graph around it; None for the graph of a capture.
        graph: its own; ends with an output node once it is finished.
        rounds: of a loop.
        is_closed: whether nothing can be taken from it any more.
    """

    def __init__(self, node: fx.Node | None = None, rounds: Rounds | None = None):
        self.node, self.graph = node, fx.Graph()
        self.rounds, self.is_closed = rounds, False
        self._captures: dict[fx.Node, fx.Node] = {}
        self._results: dict[fx.Node, fx.Node] = {}
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
            meta = {**_known(outer), "stands_for": outer}
            inner = self._captures[outer] = self.placeholder(outer.name, meta)
            self.node.args = (*self.node.args, outer)
        return inner

    def captured(self) -> dict[fx.Node, fx.Node]:
        """What is captured: node of the graph around -> placeholder."""
        return dict(self._captures)

    def copy(self, node: fx.Node) -> "Region":
        """The same for another node; of a region that is finished."""
        twin, new = Region(node, self.rounds), {}
        twin.is_closed = self.is_closed
        twin.finish_inputs()
        for old in self.graph.nodes:
            new[old] = copied(old, twin.graph, new)
        return twin

    def result(self, inner: fx.Node) -> fx.Node:
        """The node of the graph around that stands for a node of the region."""
        outer = self._results.get(inner)
        if outer is None:
            index = len(self._results)
            with self.node.graph.inserting_after(self.node):
                outer = self.node.graph.create_node(
                    "call_function", operator.getitem, (self.node, index), {})
            outer.meta = {**_known(inner), "stands_for": inner}
            self._results[inner] = outer
        return outer

    def results(self) -> list[fx.Node]:
        """The nodes that have a result, in the order of the results."""
        return list(self._results)

    def finish(self, results: list[fx.Node]) -> None:
        """Ends the graph with the nodes whose values are the results."""
        self.graph.output(tuple(results))
        self.node.meta["val"] = tuple(node.meta["val"] for node in results)

    def prune(self) -> None:
        """Removes what is not used: results, operations, captures. What loops carry stays."""
        if self.rounds is None:
            self._prune_results()
        prune(self.graph)
        kept = []
        for number, (inner, outer) in enumerate(zip(placeholders(self.graph), self.node.args)):
            is_carried = self.rounds is not None and number < self.rounds.carried
            if inner.users or is_carried:
                kept.append(outer)
            else:
                self.graph.erase_node(inner)
        self.node.args = tuple(kept)

    def _prune_results(self) -> None:
        used = sorted(self.node.users, key=lambda part: part.args[1])
        end = next(reversed(self.graph.nodes))
        end.args = (tuple(end.args[0][part.args[1]] for part in used),)
        for index, part in enumerate(used):
            part.args = (self.node, index)
        self.node.meta["val"] = tuple(node.meta["val"] for node in end.args[0])


def copied(node: fx.Node, graph: fx.Graph, new: dict[fx.Node, fx.Node]) -> fx.Node:
    """Appends a copy of a node to a graph, with a copy of the region that it runs; ``new`` has what
    stands there for its operands."""
    twin = graph.node_copy(node, new.__getitem__)
    if region_of(node) is not None:
        twin.meta["region"] = region_of(node).copy(twin)
    return twin


def _known(node: fx.Node) -> dict:
    """What is known about every node, without what belongs to an operation."""
    return {key: node.meta[key] for key in _OF_EACH_NODE}


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
            if node.target is not ops.checkpoint.default:
                graph.erase_node(node)
        elif region_of(node) is not None:
            region_of(node).prune()


def nodes_within(graph: fx.Graph):
    """The nodes of a graph, and of the regions in it."""
    for node in graph.nodes:
        yield node
        if region_of(node) is not None:
            yield from nodes_within(region_of(node).graph)


def hidden_memory(inner: Region, results: list[fx.Node]) -> set[int]:
    """Memory in which a result lies together with a capture, another result or a picked element.

    A change of it outside of the region would have to change them all.
    """
    places = [memory_of(node.meta["val"]) for node in results]
    others = {memory_of(node.meta["val"]) for node in placeholders(inner.graph)}
    shared = {place for place in places if place in others or places.count(place) > 1}
    for node in nodes_within(inner.graph):
        if "picked_from" in node.meta and memory_of(node.meta["val"]) in places:
            shared |= {memory_of(end.meta["val"]) for end in (node, node.meta["picked_from"])}
    return shared
