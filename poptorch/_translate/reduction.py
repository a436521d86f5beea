"""How the gradients of micro-batches and replicas become one: where they are divided.

    Running       accumulate(g / G),  all_reduce mean,  times 1 / N
    Post          accumulate(g),      all_reduce mean,  times 1 / (G N)
    PostAndLoss   accumulate(g / R),  all_reduce sum,   times 1 / G
    sums          accumulate(g),      all_reduce sum

G is the number of micro-batches and R that of all replicas: the loss is the mean over the whole
batch. The all_reduce is over the replicas that hold the same value of the parameter, one of N
groups (N = 1 where all replicas hold it), and its mean divides by R / N. Dividing by a power of two
is exact in float32, so what is to be divided last is divided on the way where it is one: the same
bits, and no further pass over the gradients.
"""

from dataclasses import dataclass

import torch

from poptorch import _C
from poptorch._base.types import ir_dtype, torch_dtype
from poptorch.enums import MeanReductionStrategy

_HALVES = ("f16", "bf16")


@dataclass(frozen=True)
class Reduction:
    """By what one gradient is divided: each micro-batch's as it is added, and the result."""

    each: int = 1
    over_replicas: str = "sum"
    last: int = 1


def of(spec, value, path: str) -> Reduction:
    """The divisors for a gradient.

    Args:
        spec: the loops around the graph.
        value: the IR value of the gradient.
        path: of the parameter.
    """
    strategy, count = spec.mean_strategy, spec.accumulation
    if not spec.mean:
        return Reduction()
    if strategy is MeanReductionStrategy.PostAndLoss:
        return Reduction(spec.replicas, "sum", count)
    groups = spec.reducing(path).count
    is_running = strategy is MeanReductionStrategy.Running
    each, last = (count, groups) if is_running else (1, count * groups)
    if last & (last - 1) == 0 and value.dtype not in _HALVES:
        each, last = each * last, 1
    return Reduction(each, "mean", last)


def finished(emitter, spec, gradient, path: str, dtype: torch.dtype, shards):
    """The gradient that the optimizer sees, of the sum over a replica's micro-batches: the whole
    one, or the replica's part where ``shards`` has the path. ``dtype`` is that in which gradients
    are added up."""
    groups = spec.reducing(path)
    if spec.accumulation == 1 and groups.size > 1 and gradient.dtype != ir_dtype(dtype):
        attrs = {"dtype": _C.DType(ir_dtype(dtype)), "part": "backward"}
        gradient = emitter.plain("cast", [gradient], attrs)[0]
    reduction = of(spec, gradient, path)
    if spec.accumulation == 1:
        gradient = _divided(emitter, gradient, reduction.each)
    if path in shards.states:
        gradient = shards.reduced(emitter, gradient, reduction.over_replicas)
    elif groups.size > 1:
        attrs = {"op": reduction.over_replicas, "part": "backward"}
        if groups.count > 1:
            attrs |= {"group_size": groups.size, "orthogonal": groups.is_orthogonal}
        gradient = emitter.plain("all_reduce", [gradient], attrs)[0]
    return _divided(emitter, gradient, reduction.last)


def of_host(spec, loss: str, scale: float | None) -> float | None:
    """By what a gradient of one micro-batch is divided, to be its part of that of the whole loss;
    None where only the program knows it.

    The device rounds the loss scale, if one was sent, to the dtype ``loss``.
    """
    if spec.automatic_loss_scaling:
        return None
    rounded = 1.0 if scale is None else torch.tensor(scale, dtype=torch_dtype(loss)).item()
    return rounded * (spec.accumulation * spec.replicas if spec.mean else 1)


def _divided(emitter, value, divisor: int):
    if divisor == 1:
        return value
    constant = emitter.constant(divisor, emitter.dtype_of(value))
    return emitter.plain("div", [value, constant], {"part": "backward"})[0]
