"""A captured program without regions: their operations stand where their nodes were."""

import operator
from dataclasses import replace

from torch import fx

from poptorch._capture.captured import Captured
from poptorch._capture.regions import placeholders, region_of


def inlined(captured: Captured) -> Captured:
    """A captured program with the operations of each region in the place of its node."""
    if not any(region_of(node) for node in captured.graph.nodes):
        return captured
    graph, new = fx.Graph(), {}
    for node in captured.graph.nodes:
        _copy(node, graph, new)
    return replace(captured, graph=graph, outputs=[
        replace(spec, node=new[spec.node]) for spec in captured.outputs])


def _copy(node: fx.Node, graph: fx.Graph, new: dict) -> None:
    """Adds a node to a graph; ``new`` has what stands there for each node of the old ones."""
    inner = region_of(node)
    if node.target is operator.getitem and region_of(node.args[0]) is not None:
        new[node] = new[node.args[0]][node.args[1]]
    elif inner is None:
        new[node] = graph.node_copy(node, new.__getitem__)
    else:
        new.update(zip(placeholders(inner.graph), (new[outer] for outer in node.args)))
        *operations, end = (n for n in inner.graph.nodes if n.op != "placeholder")
        for operation in operations:
            _copy(operation, graph, new)
        new[node] = [new[result] for result in end.args[0]]
