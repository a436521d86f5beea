"""Layers whose weights have another floating-point type than what they are applied to.

Torch refuses them; here the weights are cast to the type of the activation.
"""

import torch
import torch.nn.functional as F

from poptorch._capture.decompose.table import computed_in


def follow(x: torch.Tensor, weights):
    """The weights (or None) in the floating-point type of ``x``; under autocast as they are."""
    if not x.is_floating_point() or torch.is_autocast_enabled("cpu"):
        return list(weights)
    return [w if w is None or w.dtype is x.dtype or not w.is_floating_point() else w.to(x.dtype)
            for w in weights]


def _weights_at(position: int):
    """Handler of a function whose weight and bias are the arguments from ``position`` on."""

    def handler(capture, func, /, *args, **kwargs):
        x = args[0] if args else kwargs.get("input")
        given = list(args[position:position + 2])
        named = [kwargs.get(name) for name in ("weight", "bias")]
        is_good = all(isinstance(t, torch.Tensor) for t in (x, *given, *named) if t is not None)
        if x is None or not is_good:
            return NotImplemented  # torch has the words for it
        new = follow(x, [*given, *named])
        if all(a is b for a, b in zip(new, [*given, *named])):
            return NotImplemented
        for name, weight in zip(("weight", "bias"), new[len(given):]):
            if weight is not None:
                kwargs = {**kwargs, name: weight}
        return func(*args[:position], *new[:len(given)], *args[position + 2:], **kwargs)

    return handler


def _norm(capture, func, /, *args, **kwargs):
    """A norm of 16-bit numbers by single-precision weights has float32 inside, in eager too."""
    x = args[0] if args else kwargs.get("input")
    weights = [*args[2:4], kwargs.get("weight"), kwargs.get("bias")]
    given = [w for w in weights if isinstance(w, torch.Tensor)]
    if not (given and isinstance(x, torch.Tensor) and computed_in(x.dtype) is not x.dtype
            and all(w.dtype is torch.float32 for w in given)):
        return _FOLLOWING(capture, func, *args, **kwargs)
    if args:
        return func(x.float(), *args[1:], **kwargs).to(x.dtype)
    return func(**{**kwargs, "input": x.float()}).to(x.dtype)


_FOLLOWING = _weights_at(2)

HANDLERS = {
    **dict.fromkeys((F.linear, F.prelu, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d,
                     F.conv_transpose2d, F.conv_transpose3d), _weights_at(1)),
    **dict.fromkeys((F.layer_norm, F.group_norm), _norm),
}
