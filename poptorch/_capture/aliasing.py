"""Plain tensors that hang together with others, of which the program has a copy each."""

import torch

from poptorch._base import layout
from poptorch._base.torch_private import tracing as private
from poptorch._capture.graph.captured import InputSpec, OutputSpec
from poptorch.errors import error_at


def check_memory(recorder, inputs: list[InputSpec], outputs: list[OutputSpec], name_of) -> None:
    """Checks that a plain tensor does not lie in the memory of another tensor, where a run changes
    one of the two.

    Args:
        recorder: of the program.
        inputs: all of them, one for each placeholder.
        outputs: with what runs change.
        name_of: gives the attribute that a plain tensor is; None for others.

    Raises:
        poptorch.Error: Two of them do.
    """
    changed = {spec.name for spec in outputs
               if spec.kind in ("constant_update", "buffer_update", "grad")}
    if not changed or not recorder.constants:
        return
    states = [(spec.name, spec.tensor) for spec in inputs if spec.kind in ("param", "buffer")]
    constants = {f"constant.{index}": (node, tensor)
                 for index, (node, tensor) in enumerate(recorder.constants.items())}
    by_memory: dict[int, list[tuple[str, torch.Tensor]]] = {}
    used = {spec.name for spec in inputs}
    for name, tensor in (*states, *((name, held) for name, (_, held) in constants.items())):
        if name in used:
            by_memory.setdefault(layout.memory_of(tensor), []).append((name, tensor))
    for held in by_memory.values():
        for number, (name, tensor) in enumerate(held):
            for other_name, other in held[:number] if name in constants else ():
                if {name, other_name} & changed and layout.overlap(tensor, other):
                    said = [name_of(one) or "another plain tensor" if path in constants else path
                            for path, one in ((name, tensor), (other_name, other))]
                    raise _error(constants[name][0], f"{_what(tensor, name_of)} lies in the memory "
                                 f"of {said[1]}, and a run changes "
                                 f"{said[name not in changed]}; the program has a copy of each. "
                                 f"Make the view in forward.")


def check_history(recorder, loss: torch.Tensor, name_of) -> None:
    """Checks that no gradient ends at a plain tensor that was computed before ``forward``.

    Raises:
        poptorch.Error: One does: the program has the value, not what it was computed from.
    """
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
