"""Layers whose weights have another floating-point type than what they are applied to.

Torch refuses them; here the weights are cast to the type of the activation.
"""

import torch
import torch.nn.functional as F


def follow(x: torch.Tensor, weights):
    """The weights (or None) in the floating-point type of ``x``; under autocast as they are."""
    if not x.is_floating_point() or torch.is_autocast_enabled("cpu"):
        return list(weights)
    return [w if w is None or w.dtype is x.dtype or not w.is_floating_point() else w.to(x.dtype)
            for w in weights]


def _weights_at(position: int):
    """Handler of a function whose weight and bias are the arguments from ``position`` on."""

    def handler(capture, func, args, kwargs):
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


HANDLERS = {
    **dict.fromkeys((F.linear, F.prelu, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d,
                     F.conv_transpose2d, F.conv_transpose3d), _weights_at(1)),
    **dict.fromkeys((F.layer_norm, F.group_norm), _weights_at(2)),
}
