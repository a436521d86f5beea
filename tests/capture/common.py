"""Compares a captured program with eager PyTorch, in float64."""

import copy

import torch
from torch import nn
from torch.utils import _pytree as pytree

from poptorch._capture import capture
from tests.capture.reference import evaluate
from tests.helpers import check_wide

Tensor = torch.Tensor


def clone(tree):
    """Detached copies of all tensors."""
    return pytree.tree_map(lambda t: t.detach().clone() if isinstance(t, Tensor) else t, tree)


def tensors_of(tree):
    """The tensors of a structure, in order."""
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, Tensor)]


class Function(nn.Module):
    """A function as a module, with parameters and buffers that it finds on its first argument."""

    def __init__(self, function, parameters=(), buffers=()):
        super().__init__()
        self.function = function
        for name, tensor in dict(parameters).items():
            self.register_parameter(name, nn.Parameter(tensor))
        for name, tensor in dict(buffers).items():
            self.register_buffer(name, tensor)

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


def check_inference(module, *args, **kwargs):
    """Results, changed inputs and changed buffers are those of eager; returns the program."""
    captured = capture(module, clone(args), clone(kwargs), training=False)
    ours, others = evaluate(captured, tensors_of((args, kwargs)))
    eager = copy.deepcopy(module)
    args, kwargs = clone(args), clone(kwargs)
    with torch.no_grad():
        expected = eager(*args, **kwargs)
    check_wide(tensors_of(ours), tensors_of(expected))
    _check_changes(captured, others, eager, tensors_of((args, kwargs)))
    return captured


def check_training(module, *args, **kwargs):
    """As :func:`check_inference`, with the gradients; forward returns (anything, loss)."""
    captured = capture(module, clone(args), clone(kwargs), training=True)
    ours, others = evaluate(captured, tensors_of((args, kwargs)))
    eager = copy.deepcopy(module)
    args, kwargs = clone(args), clone(kwargs)
    expected = eager(*args, **kwargs)
    expected[-1].sum().backward()
    check_wide(tensors_of(ours), tensors_of(expected))
    gradients = {n: p.grad for n, p in eager.named_parameters() if p.grad is not None}
    check_wide(dict(sorted(others.get("grad", {}).items())), dict(sorted(gradients.items())))
    _check_changes(captured, others, eager, tensors_of((args, kwargs)))
    return captured


def _check_changes(captured, others, eager, inputs):
    state = {**dict(eager.named_parameters()), **dict(eager.named_buffers())}
    updates = others.get("buffer_update", {})
    before = {spec.name: spec.tensor for spec in captured.inputs if spec.kind != "input"}
    check_wide({n: updates.get(n, before[n]) for n in state if n in before},
               {n: t for n, t in state.items() if n in before})
    changed = {spec.leaf: spec.name for spec in captured.outputs if spec.kind == "input_update"}
    for index, tensor in enumerate(inputs):
        if index in changed:
            check_wide([others["input_update"][changed[index]]], [tensor])
    return changed


def nodes(captured, target=None):
    """The operations of a program, or only those of one target."""
    return [n for n in captured.graph.nodes if n.op == "call_function"
            and (target is None or n.target is target)]
