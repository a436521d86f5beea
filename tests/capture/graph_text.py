"""A captured graph in a readable form, which tests compare."""

import torch

from poptorch._capture.graph.regions import region_of


def text(captured) -> str:
    """One line for each node and result."""
    ends = [f"{spec.kind} {spec.name}: %{spec.node.name}" for spec in captured.outputs]
    return "\n".join([*_lines(captured.graph), *ends]) + "\n"


def _lines(graph: torch.fx.Graph):
    """A line for each node; the graph of a region is indented below its node."""
    for node in graph.nodes:
        if node.op == "output":
            continue
        yield _line(node)
        if region_of(node) is not None:
            inner = region_of(node).graph
            yield from (f"    {line}" for line in _lines(inner))
            yield f"    return {_argument(next(reversed(inner.nodes)).args[0])}"


def _line(node: torch.fx.Node) -> str:
    if node.op == "placeholder":
        return f"%{node.name} : {_type(node.meta['val'])}"
    target = str(node.target) if hasattr(node.target, "_schema") else node.target.__name__
    arguments = [_argument(a) for a in node.args]
    arguments += [f"{key}={_argument(value)}" for key, value in node.kwargs.items()]
    return f"%{node.name} = {target}({', '.join(arguments)}) : {_type(node.meta['val'])}"


def _argument(value) -> str:
    if isinstance(value, torch.fx.Node):
        return f"%{value.name}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_argument, value))}]"
    return str(value)


def _type(val) -> str:
    if isinstance(val, torch.Tensor):
        return f"{str(val.dtype).removeprefix('torch.')}[{','.join(map(str, val.shape))}]"
    if isinstance(val, (list, tuple)):
        return f"({', '.join(map(_type, val))})"
    return "none"
