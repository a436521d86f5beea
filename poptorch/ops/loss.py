"""Marking the tensor that training minimises."""

import torch

from poptorch._base.capture_context import current
from poptorch.errors import Error

_REDUCTIONS = {"sum": torch.sum, "mean": torch.mean, "none": lambda x: x}


def identity_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    """Marks a tensor as the loss, so that the backward pass starts there.

    Several tensors may be marked if all flow into one of them, which is then the loss. A loss of
    PyTorch that does not flow into it is not trained: a result that holds both is an error, one of
    its own is warned of. Outside of poptorch it only reduces.

    Args:
        x: the loss, of any shape.
        reduction: ``"sum"``, ``"mean"`` or ``"none"``; a loss of several elements that is not
            reduced is differentiated as their sum.

    Returns:
        The reduced tensor: 0-d for ``"sum"`` and ``"mean"``, else of the shape of ``x``.

    Raises:
        TypeError: ``x`` is not a tensor.
        poptorch.Error: The reduction is unknown.

    Example:
        >>> import poptorch, torch
        >>> poptorch.identity_loss(torch.tensor([1.0, 3.0]), reduction="mean")
        tensor(2.)
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"[identity_loss] x is expected to be a tensor, got {type(x).__name__} "
                        f"{x!r}.")
    name = getattr(reduction, "name", reduction)
    name = name.lower() if isinstance(name, str) else None
    if name not in _REDUCTIONS:
        raise Error(f"[identity_loss] unknown reduction {reduction!r}. Choose \"sum\", \"mean\" "
                    f"or \"none\".")
    loss = _REDUCTIONS[name](x)
    capture = current()
    if capture is not None:
        capture.losses.mark(loss)
    return loss
