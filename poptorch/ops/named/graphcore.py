"""The domains ``ai.graphcore`` and ``poptorch.custom_ops``."""

import torch

from poptorch.errors import Error
from poptorch.ops.named.registry import Row


def _fast_gather_last_dim(data, indices, *, axis=-1):
    if axis not in (-1, data.dim() - 1):
        raise Error(f"[FastGatherLastDim] gathers along the last dimension, got axis {axis} for a "
                    f"tensor of {data.dim()} dimensions. Use torch.gather for others.")
    return torch.gather(data, -1, indices.long())


def _scale(x, *, scale: float):
    return x * scale


def _reverse(x, *, dimensions: list[int]):
    return torch.flip(x, dimensions)


_ONE = {"Atan2": lambda a, b: torch.atan2(a, b), "Detach": lambda x: x.detach(),
        "Expm1": lambda x: torch.expm1(x), "Fmod": lambda a, b: torch.fmod(a, b),
        "Log1p": lambda x: torch.log1p(x), "Remainder": lambda a, b: torch.remainder(a, b),
        "Reverse": _reverse, "Scale": _scale,
        "ScaledAdd": lambda a, b, *, scale0=1.0, scale1=1.0: a * scale0 + b * scale1}

ROWS = [Row("ai.graphcore", name, 1, 1, function) for name, function in _ONE.items()]
ROWS.append(Row("poptorch.custom_ops", "FastGatherLastDim", 1, 1, _fast_gather_last_dim))
