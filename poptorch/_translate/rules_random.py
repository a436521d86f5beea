"""Rules for random numbers: every op names its call site (`salt`) and reads the random state."""

import torch

from poptorch import _C
from poptorch._translate.registry import Rules
from poptorch._types import ir_dtype

RULES = Rules()


def _draw(e, node, name: str, dtype: torch.dtype | None = None, **attrs):
    val = node.meta["val"]
    dtype = val.dtype if dtype is None else dtype
    return e.op(name, e.rng(), size=list(val.shape), dtype=_C.DType(ir_dtype(dtype)),
                salt=e.salt(node.meta["salt"]), **attrs)


@RULES("aten::rand", "aten::rand_like")
def _rand(e, node, *args, **kwargs):
    return _draw(e, node, "random_uniform", low=0.0, high=1.0)


@RULES("aten::uniform")
def _uniform(e, node, x, low=0.0, high=1.0, **kwargs):
    return _draw(e, node, "random_uniform", low=float(low), high=float(high))


@RULES("aten::randn", "aten::randn_like")
def _randn(e, node, *args, **kwargs):
    return _draw(e, node, "random_normal", mean=0.0, std=1.0)


@RULES("aten::normal_functional")
def _normal(e, node, x, mean=0.0, std=1.0, **kwargs):
    return _normal_of_numbers(e, node, mean, std)


@RULES("aten::normal.float_float")
def _normal_of_numbers(e, node, mean, std, *args, **kwargs):
    return _draw(e, node, "random_normal", mean=float(mean), std=float(std))


@RULES("aten::normal.Tensor_float", "aten::normal.float_Tensor", "aten::normal.Tensor_Tensor")
def _normal_tensor(e, node, mean=0.0, std=1.0, **kwargs):
    dtype = node.meta["val"].dtype
    noise = _draw(e, node, "random_normal", mean=0.0, std=1.0)
    mean, std = (v if isinstance(v, _C.Value) else e.constant(float(v), dtype)
                 for v in (mean, std))
    return e.op("add", e.op("mul", noise, std), mean, alpha=1.0)


@RULES("aten::bernoulli", "aten::bernoulli.p")
def _bernoulli(e, node, x, p=None, **kwargs):
    val = node.meta["val"]
    dtype = val.dtype if val.dtype.is_floating_point else torch.float32
    if isinstance(p, _C.Value):
        x = e.expand(p, val.shape)
    elif p is not None:
        x = e.full(val.shape, p, dtype)
    drawn = e.op("bernoulli", e.cast(x, dtype), e.rng(), salt=e.salt(node.meta["salt"]))
    return e.cast(drawn, val.dtype)


@RULES("aten::randint", "aten::randint_like")
def _randint(e, node, first, *args, **kwargs):
    # (high, size) or (x, high); the overloads with `low` have names of their own.
    high = args[0] if isinstance(first, _C.Value) else first
    return _draw(e, node, "random_int", low=0, high=int(high))


@RULES("aten::randint.low", "aten::randint_like.low_dtype")
def _randint_low(e, node, first, *args, **kwargs):
    low, high = args[:2] if isinstance(first, _C.Value) else (first, args[0])
    return _draw(e, node, "random_int", low=int(low), high=int(high))


@RULES("aten::random.from")
def _random_from(e, node, x, low, high, **kwargs):
    return _draw(e, node, "random_int", low=int(low), high=int(high))


@RULES("aten::random.to")
def _random_to(e, node, x, high, **kwargs):
    return _draw(e, node, "random_int", low=0, high=int(high))


@RULES("aten::randperm")
def _randperm(e, node, n, **kwargs):
    return e.op("random_permutation", e.rng(), n=int(n),
                dtype=_C.DType(ir_dtype(node.meta["val"].dtype)), salt=e.salt(node.meta["salt"]))


@RULES("aten::exponential")
def _exponential(e, node, x, lambd=1.0, **kwargs):
    return _draw(e, node, "random_exponential", lambd=float(lambd))
