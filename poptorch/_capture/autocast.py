"""What torch's autocast does to the arguments of an operation that it runs in a lower precision."""

import torch


def autocast(*tensors):
    """The tensors (or None) in the autocast dtype, if autocast is on; double precision stays."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(_cast(t, dtype) for t in tensors)


def _cast(tensor, dtype: torch.dtype):
    if tensor is None or not tensor.is_floating_point() or tensor.dtype is torch.float64:
        return tensor
    return tensor.to(dtype)
