"""Operations of ``ai.graphcore`` that exchange data between replicas inside a model.

Without a wrapped model there is one replica. All use one sum over a group of replicas, so PyTorch
has their gradients: those of the sum of the results of all replicas.
"""

import torch

from poptorch._base import capture_context
from poptorch._capture.library import replicas  # noqa: F401  (declares the operations)
from poptorch._capture.library.layers import ops
from poptorch.errors import Error
from poptorch.ops.named.registry import Row

_DOMAIN = "ai.graphcore"


def _group(name: str, group_size: int, orthogonal: int) -> tuple[int, int, bool]:
    """The number of replicas, the size of a group, and whether groups are orthogonal."""
    capture = capture_context.current()
    replicas = 1 if capture is None else capture.replicas
    if group_size < 0 or replicas % (group_size or replicas):
        raise Error(f"[{_DOMAIN}::{name}] group_size is {group_size}, there are {replicas} "
                    f"replicas. Give a divisor of their number, or 0 for all of them.")
    if orthogonal not in (0, 1):
        raise Error(f"[{_DOMAIN}::{name}] orthogonal is {orthogonal}. Give 0 or 1.")
    return replicas, group_size or replicas, bool(orthogonal)


def _all_reduce(x, *, group_size: int = 0, orthogonal: int = 0):
    _, size, orthogonal = _group("ReplicatedAllReduceTP", group_size, orthogonal)
    if x.dtype is torch.bool:
        raise Error(f"[{_DOMAIN}::ReplicatedAllReduceTP] adds numbers, got a tensor of bools. "
                    f"Convert it with .int().")
    return x.clone() if size == 1 else ops.all_reduce(x, size, orthogonal)


def _all_gather(x, *, group_size: int = 0, orthogonal: int = 0):
    return _gathered(x, *_group("ReplicatedAllGather", group_size, orthogonal))


def _all_to_all(x, *, group_size: int = 0, orthogonal: int = 0):
    replicas, size, orthogonal = _group("ReplicatedAllToAll", group_size, orthogonal)
    if x.dim() == 0 or x.shape[0] != size:
        raise Error(f"[{_DOMAIN}::ReplicatedAllToAll] a tensor of sizes {list(x.shape)} is "
                    f"exchanged between {size} replicas. Give one entry of the first dimension "
                    f"for each.")
    if size == 1:
        return x.clone()
    place = ops.place_in_group(x, replicas, size, orthogonal)
    every = _gathered(x, replicas, size, orthogonal)
    return ops.dynamic_slice(every, 1, place, 1, 1).squeeze(1)


def _gathered(x, replicas: int, size: int, orthogonal: bool):
    """The tensors of a group, one behind the other: each adds its own to what changes none."""
    if size == 1:
        return x.clone().unsqueeze(0)
    place = ops.place_in_group(x, replicas, size, orthogonal)
    nothing = -0.0 if x.is_floating_point() else 0
    base = torch.full((size, *x.shape), nothing, dtype=x.dtype)
    return ops.all_reduce(ops.dynamic_update(base, x.unsqueeze(0), 0, place, 1, 1), size,
                          orthogonal)


ROWS = [Row(_DOMAIN, name, 1, 1, function) for name, function in (
    ("ReplicatedAllGather", _all_gather), ("ReplicatedAllReduceTP", _all_reduce),
    ("ReplicatedAllToAll", _all_to_all))]
