"""Gradients of whole layers that are differentiated again (``create_graph=True``).

The ops that compute the gradient of a whole layer have no gradient themselves. Where one may be
asked for, the layer is computed once more by operations that have.
"""

import torch

from poptorch._base import capture_context

aten = torch.ops.aten


def differentiable(function, operands, needed, gradients) -> list:
    """The gradients of the operands (or None) that are ``needed``, as operations that can be
    differentiated, from those (or None) of the tuple that ``function(*operands)`` is."""
    # An alias each, as one tensor may be several operands.
    operands = [None if x is None else aten.alias.default(x) for x in operands]
    known = [(out, g) for out, g in zip(function(*operands), gradients) if g is not None]
    results, given = map(list, zip(*known))
    wanted = [x for x, is_needed in zip(operands, needed) if is_needed]
    found = iter(torch.autograd.grad(results, wanted, given, create_graph=True, allow_unused=True)
                 if wanted else ())
    return [next(found) if is_needed else None for is_needed in needed]


def refused(name: str):
    """The formula of a gradient's gradient that is not implemented: it raises."""
    def gradient(ctx, *gradients):
        raise capture_context.current().recorder.error(
            f"[{name}] there is no gradient of its gradient. Call torch.autograd.grad without "
            f"create_graph, or detach what flows into it.")
    return gradient
