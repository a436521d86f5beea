"""What the operations of namespace ``poptorch`` keep for their gradients.

PyTorch's own operations keep other tensors, so a change in place of what is kept is no error here:
the gradient is computed from the values at the time of the operation, which the graph has.
"""

import torch

from poptorch._base import capture_context
from poptorch._capture.library import tensor_nodes

aten = torch.ops.aten


def keep(ctx, *tensors: torch.Tensor | None) -> None:
    """Keeps tensors (or None) for the gradient of the operation that was recorded last."""
    ctx.save_for_backward(*tensors)
    capture = capture_context.current()
    if capture is not None:
        # The number alone: a tensor that its own autograd node holds is never freed.
        ctx.kept = len(capture.recorder.kept)
        capture.recorder.kept.append(_moment(capture.recorder, tensors))


def kept(ctx) -> tuple[torch.Tensor | None, ...]:
    """The tensors that were kept, with the values that they had then."""
    capture = capture_context.current()
    if capture is None:
        return ctx.saved_tensors
    moment = capture.recorder.kept[ctx.kept]
    if all(tensor is None or tensor._version == version for tensor, version, *_ in moment):
        return ctx.saved_tensors
    return tuple(None if tensor is None else
                 tensor if tensor._version == version and tensor_nodes.node_of(tensor) is node
                 else _value_then(capture.recorder, node, newest)
                 for tensor, version, node, newest in moment)


def _moment(recorder, tensors) -> list[tuple]:
    """Of each tensor, its version, its node and the newest node of the graph."""
    newest = next(iter(reversed(recorder.graph.nodes)))
    return [(None, 0, None, newest) if tensor is None else
            (tensor, tensor._version, recorder.node_of(tensor), newest) for tensor in tensors]


def _value_then(recorder, node, newest):
    """A copy of the value that a recorded tensor had after the node ``newest``."""
    with recorder.after(newest):
        copy = aten.clone.default(recorder.value_of(node))
        recorder.node_of(copy).meta = {**newest.meta, "val": copy}
    return copy
