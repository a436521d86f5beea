"""What torch's autocast does to the arguments of an operation that runs whole."""

import torch


def autocast(*tensors):
    """The tensors (or None) in the autocast dtype, if autocast is on; double precision stays."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(_cast(t, dtype) for t in tensors)


def widened(tensor):
    """The tensor (or None) as an operation gets it that autocast, if it is on, runs in float32."""
    return _cast(tensor, torch.float32) if torch.is_autocast_enabled("cpu") else tensor


def autocast_beside(state: torch.Tensor) -> torch.dtype:
    """The type of what torch computes of products under autocast and of ``state``, which it leaves
    as it is; that of ``state`` if autocast is off."""
    if not torch.is_autocast_enabled("cpu"):
        return state.dtype
    return torch.promote_types(state.dtype, torch.get_autocast_dtype("cpu"))


def _cast(tensor, dtype: torch.dtype):
    if tensor is None or not tensor.is_floating_point() or tensor.dtype is torch.float64:
        return tensor
    return tensor.to(dtype)
