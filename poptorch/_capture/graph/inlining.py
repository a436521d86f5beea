"""A captured program without regions but the bodies of loops: their operations stand where their
nodes were."""

import operator
from dataclasses import replace

from torch import fx

from poptorch._capture.graph.captured import Captured
from poptorch._capture.graph.regions import Region, placeholders, region_of


def inlined(captured: Captured) -> Captured:
    """A captured program with the operations of each region in the place of its node."""
    if not any(region_of(node) for node in captured.graph.nodes):
        return captured
    graph, new = fx.Graph(), {}
    for node in captured.graph.nodes:
        _copy(node, graph, new)
    return replace(captured, graph=graph, outputs=[
        replace(spec, node=new[spec.node]) for spec in captured.outputs])


def _inlined_body(body: Region, node: fx.Node) -> Region:
    """The body of a loop, without other regions than loops in it."""
    found, new = Region(node, body.rounds), {}
    found.finish_inputs()
    for inner in body.graph.nodes:
        if inner.op == "output":
            found.graph.output(tuple(new[result] for result in inner.args[0]))
        elif inner.op == "placeholder":
            new[inner] = found.graph.node_copy(inner)
        else:
            _copy(inner, found.graph, new)
    return found


def _copy(node: fx.Node, graph: fx.Graph, new: dict) -> None:
    """Adds a node to a graph; ``new`` has what stands there for each node of the old ones."""
    inner = region_of(node)
    source = region_of(node.args[0]) if node.target is operator.getitem else None
    if source is not None and source.rounds is None:
        new[node] = new[node.args[0]][node.args[1]]
    elif inner is None:
        new[node] = graph.node_copy(node, new.__getitem__)
    elif inner.rounds is not None:
        new[node] = graph.node_copy(node, new.__getitem__)
        new[node].meta["region"] = _inlined_body(inner, new[node])
    else:
        new.update(zip(placeholders(inner.graph), (new[outer] for outer in node.args)))
        *operations, end = (n for n in inner.graph.nodes if n.op != "placeholder")
        for operation in operations:
            _copy(operation, graph, new)
        new[node] = [new[result] for result in end.args[0]]
