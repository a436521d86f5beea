"""Runs the user's forward, and the backward pass, once on fake tensors.

Nothing of poptorch's or torch's own may stand between this file and the caller's program: the
walk that finds the user's file and line ends here.
"""

import torch


def run_forward(module: torch.nn.Module, args: tuple, kwargs: dict):
    """Calls the module as its user would."""
    return module(*args, **kwargs)


def run_backward(loss: torch.Tensor, parameters: list[torch.Tensor]) -> tuple:
    """Gradients of ``loss`` (its sum, if it is no scalar) for each parameter, or None; and what
    the gradient of the loss itself begins with."""
    # Autocast is on in the forward pass only, as when a program calls loss.backward().
    with torch.autocast("cpu", enabled=False):
        seed = torch.ones_like(loss)
        return torch.autograd.grad(loss, parameters, seed, allow_unused=True), seed
