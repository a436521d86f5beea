"""Plain tensors that share memory with others. The program has a copy of each."""

import itertools

import torch

from poptorch._base import layout
from poptorch._base.torch_private import tracing as private
from poptorch._capture.graph.captured import InputSpec, OutputSpec
from poptorch.errors import error_at


def check_memory(recorder, inputs: list[InputSpec], outputs: list[OutputSpec], name_of) -> None:
    """Raises an Error if a plain tensor shares memory with another tensor and a run changes one of
    the two. ``name_of`` gives the attribute that a plain tensor is, or None."""
    changed = {spec.name for spec in outputs
               if spec.kind in ("constant_update", "buffer_update", "grad")}
    if not changed or not recorder.constants:
        return
    constants = {f"constant.{index}": node for index, node in enumerate(recorder.constants)}
    by_memory: dict[int, list[tuple[str, torch.Tensor]]] = {}
    for spec in inputs:
        if spec.kind != "input":
            tensor = recorder.constants[constants[spec.name]] if spec.kind == "constant" \
                else spec.tensor
            by_memory.setdefault(layout.memory_of(tensor), []).append((spec.name, tensor))
    pairs = (pair for held in by_memory.values() for pair in itertools.combinations(held, 2))
    for (other_name, other), (name, tensor) in pairs:
        if name in constants and {name, other_name} & changed and layout.overlap(tensor, other):
            said = [name_of(one) or "another plain tensor" if path in constants else path
                    for path, one in ((name, tensor), (other_name, other))]
            raise _error(constants[name], f"{_what(tensor, name_of)} shares memory with "
                         f"{said[1]}, and a run changes {said[name not in changed]}; the program "
                         f"has a copy of each. Make the view in forward.")


def check_history(recorder, loss: torch.Tensor, name_of) -> None:
    """Raises an Error if a gradient ends at a plain tensor that was computed before ``forward``:
    the program has its value, not its history."""
    computed = {tensor.grad_fn: node for node, tensor in recorder.constants.items()
                if tensor.grad_fn is not None}
    for step in private.autograd_nodes(loss.grad_fn) if computed else ():
        node = computed.get(step)
        if node is not None:
            raise _error(node, f"{_what(recorder.constants[node], name_of)} was computed from "
                         f"tensors that require grad before forward was called: the program has "
                         f"its value, and gives them no gradient. Compute it in forward, or take "
                         f"it as a constant: detach().")


def _what(tensor: torch.Tensor, name_of) -> str:
    name = name_of(tensor)
    return f"the plain attribute {name}" if name else \
        f"a plain tensor of the sizes {list(tensor.shape)}"


def _error(node, what: str):
    user = next(iter(node.users), node)
    return error_at(f"[capture] {what}", user.meta["place"], user.meta["module"])
