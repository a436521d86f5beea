"""PyTorch's ``scan``, for tests that compare with eager."""

import torch
from torch._higher_order_ops import scan

import poptorch


def scan_by_python(function, carry, rows, reverse=False):
    """What ``scan`` does: in eager it cannot compile what calls modules, and computes gradients of
    zeros where nothing depends on a value."""
    if poptorch.isRunningOnIpu():
        return scan(function, carry, rows, reverse=reverse)
    made = []
    for row in rows.flip(0) if reverse else rows:
        carry, y = function(carry, row)
        made.append(y)
    return carry, torch.stack(made[::-1] if reverse else made)
