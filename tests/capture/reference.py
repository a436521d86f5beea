"""Runs captured graphs in PyTorch."""

import operator

import torch
from torch import fx

from poptorch._capture import capture
from poptorch.testing._meanings import IMPLEMENTATIONS
from tests.capture.meanings import MEANINGS

_MEANINGS = IMPLEMENTATIONS | MEANINGS


class Interpreter(fx.Interpreter):
    """Runs a captured graph on real tensors; random ATen operations follow their salt."""

    def run_node(self, node):
        if node.op == "call_function" and "salt" in node.meta:
            torch.manual_seed(node.meta["salt"])
        return super().run_node(node)

    def call_function(self, target, args, kwargs):
        return super().call_function(_MEANINGS.get(target, target), args, kwargs)


def evaluate(captured, tensors, state=None):
    """Runs a captured graph.

    Args:
        captured: the program.
        tensors: of the inputs of kind ``input``, in order.
        state: values of parameters and buffers that differ from the module's, by name.

    Returns:
        What forward returned, and the other results: kind -> name -> tensor.
    """
    given = iter(tensors)
    state = state or {}
    values = []
    for spec in captured.inputs:
        value = next(given) if spec.kind == "input" else state.get(spec.name, spec.tensor)
        # As on the device, where all that is known of a tensor is its elements.
        values.append(value.detach().clone(memory_format=torch.contiguous_format))
    with torch.no_grad():
        results = Interpreter(torch.nn.Module(), graph=captured.graph).run(*values)
    leaves, others = [], {}
    for spec, result in zip(captured.outputs, results):
        if spec.kind == "output":
            leaves.append(result)
        else:
            others.setdefault(spec.kind, {})[spec.name] = result
    check_types(captured)
    return captured.out_spec.unflatten(leaves), others


def check_types(captured):
    """Every node has its kind and its source, and changes nothing."""
    for node in captured.graph.nodes:
        if node.op == "output":
            continue
        known = {"val", "place", "module", "annotations", "backward", "recompute"}
        assert known <= set(node.meta), node
        if node.op == "call_function" and node.target is not operator.getitem:
            assert not node.target._schema.is_mutable, node
            assert torch.Tag.nondeterministic_seeded not in node.target.tags or \
                "salt" in node.meta, node


def captured_step(module, *args, **kwargs):
    """Captures a training step and runs it: (result, loss, gradients, updates)."""
    captured = capture(module, args, kwargs, training=True)
    tensors = [t for t in [*args, *kwargs.values()] if isinstance(t, torch.Tensor)]
    result, others = evaluate(captured, tensors)
    return result, others["loss"]["loss"], others.get("grad", {}), \
        others.get("buffer_update", {})
