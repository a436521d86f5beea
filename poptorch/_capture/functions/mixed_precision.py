"""The types of operands: under autocast, and of layers whose weights and inputs have different
floating-point types.

Torch refuses the latter; here the weights are cast to the type of the activation.
"""

import torch
import torch.nn.functional as F

from poptorch._capture.decompose.table import computed_in


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


def follow(x: torch.Tensor, weights):
    """The weights (or None) in the floating-point type of ``x``; under autocast as they are."""
    if not x.is_floating_point() or torch.is_autocast_enabled("cpu"):
        return list(weights)
    return [w if w is None or w.dtype is x.dtype or not w.is_floating_point() else w.to(x.dtype)
            for w in weights]


def _layer(capture, func, input, weight, bias=None, *others, **options):
    if not all(isinstance(t, torch.Tensor) for t in (input, weight, bias) if t is not None):
        return NotImplemented  # torch has the words for it
    new = follow(input, [weight, bias])
    if new[0] is weight and new[1] is bias:
        return NotImplemented
    if bias is not None or others:
        others = (new[1], *others)
    return func(input, new[0], *others, **options)


def _norm(capture, func, input, shape, weight=None, bias=None, **options):
    given = [t for t in (weight, bias) if t is not None]
    if not all(isinstance(t, torch.Tensor) for t in (input, *given)):
        return NotImplemented  # torch has the words for it
    if given and computed_in(input.dtype) is not input.dtype \
            and all(t.dtype is torch.float32 for t in given):
        # A norm of 16-bit numbers by such weights has float32 inside, in eager too.
        return func(input.float(), shape, weight, bias, **options).to(input.dtype)
    new = follow(input, [weight, bias])
    if new[0] is weight and new[1] is bias:
        return NotImplemented
    return func(input, shape, *new, **options)


HANDLERS = {
    **dict.fromkeys((F.linear, F.prelu, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d,
                     F.conv_transpose2d, F.conv_transpose3d), _layer),
    **dict.fromkeys((F.layer_norm, F.group_norm), _norm),
}
