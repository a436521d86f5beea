"""Rules for random numbers: every op names its call site (`salt`) and reads the random state."""

import math

import torch

from poptorch import _C
from poptorch._base.types import host_tensor, ir_dtype, narrowed, unrounded
from poptorch._translate import opaque
from poptorch._translate.rules.registry import register
from poptorch.errors import Error


def _draw(e, node, name: str, dtype: torch.dtype | None = None, **attrs):
    val = node.meta["val"]
    dtype = val.dtype if dtype is None else dtype
    return e.op(name, e.rng(), size=list(val.shape), dtype=_C.DType(ir_dtype(dtype)),
                salt=e.salt(node.meta["salt"]), **attrs)


@register("aten::rand", "aten::rand_like")
def _rand(e, node, *args, **kwargs):
    return _uniform(e, node, None)


@register("aten::uniform")
def _uniform(e, node, x, low=0.0, high=1.0, **kwargs):
    low, high, dtype = float(low), float(high), node.meta["val"].dtype
    if not 0 <= high - low <= torch.finfo(dtype).max:
        raise Error(f"[uniform] the range is {low} to {high}. Give finite numbers, the smaller one "
                    f"first, whose difference {dtype} can hold.")
    drawn = _draw(e, node, "random_uniform", low=low, high=high)
    if unrounded(dtype) is dtype:
        return drawn
    # To 16 bits it is rounded after it was drawn, maybe to the end, which is not of the range.
    inside = e.op("lt", drawn, e.constant(high, dtype))
    return e.op("where", inside, drawn, e.constant(low, dtype))


@register("aten::randn", "aten::randn_like")
def _randn(e, node, *args, **kwargs):
    return _draw(e, node, "random_normal", mean=0.0, std=1.0)


@register("aten::normal_functional")
def _normal(e, node, x, mean=0.0, std=1.0, **kwargs):
    return _normal_of_numbers(e, node, mean, std)


@register("aten::normal.float_float")
def _normal_of_numbers(e, node, mean, std, *args, **kwargs):
    return _draw(e, node, "random_normal", mean=float(mean), std=float(std))


# Of a tensor of deviations PyTorch's operator sees whether one is negative.
@register("aten::normal.Tensor_float")
def _normal_tensor(e, node, mean, std=1.0, **kwargs):
    noise = _draw(e, node, "random_normal", mean=0.0, std=float(std))
    return e.op("add", noise, mean, alpha=1.0)


@register("aten::bernoulli", "aten::bernoulli.p")
def _bernoulli(e, node, x, p=None, **kwargs):
    val = node.meta["val"]
    dtype = val.dtype if val.dtype.is_floating_point else torch.float32
    if p is not None:  # is not of the tensor's type: 0.999 would be 1 in bfloat16
        dtype = unrounded(dtype)
    if isinstance(p, _C.Value):
        x = e.expand(p, val.shape)
    elif p is not None:
        if not 0 <= p <= 1:
            raise Error(f"[bernoulli] p is {p}. Give a probability of 0 to 1.")
        x = e.full(val.shape, p, dtype)
    drawn = e.op("bernoulli", e.cast(x, dtype), e.rng(), salt=e.salt(node.meta["salt"]))
    return e.cast(drawn, val.dtype)


def _step(number: int, dtype: torch.dtype) -> int:
    """How far apart a type has whole numbers as large as this one."""
    return 2 ** max(abs(number).bit_length() - 1 + round(math.log2(torch.finfo(dtype).eps)), 0)


def _first_held(low: int, dtype: torch.dtype) -> int:
    """As PyTorch: where the type rounds numbers to below the range, it begins later."""
    rounded = int(torch.tensor(low + 1, dtype=dtype).item())
    return rounded + _step(low + 1, dtype) if rounded < low else low


def _last_held(high: int, dtype: torch.dtype) -> int:
    """Likewise: no number that is drawn is rounded to ``high``, which is not of the range."""
    rounded = int(torch.tensor(high - 1, dtype=dtype).item())
    return rounded - _step(high - 1, dtype) if rounded >= high else high


def _integers(e, node, low: int, high: int):
    dtype = narrowed(node.meta["val"].dtype)
    if dtype.is_floating_point:
        low, high = _first_held(low, dtype), _last_held(high, dtype)
    else:
        host_tensor(torch.tensor([low, high - 1]), "random integers")  # each fits, or none is drawn
    return _draw(e, node, "random_int", low=low, high=high)


@register("aten::randint", "aten::randint_like")
def _randint(e, node, first, *args, **kwargs):
    # (high, size) or (x, high); the overloads with `low` have names of their own.
    high = args[0] if isinstance(first, _C.Value) else first
    return _integers(e, node, 0, int(high))


@register("aten::randint.low", "aten::randint_like.low_dtype")
def _randint_low(e, node, first, *args, **kwargs):
    low, high = args[:2] if isinstance(first, _C.Value) else (first, args[0])
    return _integers(e, node, int(low), int(high))


@register("aten::random")
def _random_any(e, node, x, **kwargs):
    dtype = node.meta["val"].dtype
    if narrowed(dtype) is dtype:
        return opaque.emit(e, node, x, **kwargs)
    return _integers(e, node, 0, 2**31)  # of int64 all that int32 has


@register("aten::random.from")
def _random_from(e, node, x, low, high, **kwargs):
    return _integers(e, node, int(low), int(high))


@register("aten::random.to")
def _random_to(e, node, x, high, **kwargs):
    return _integers(e, node, 0, int(high))


@register("aten::randperm")
def _randperm(e, node, n, **kwargs):
    dtype = narrowed(node.meta["val"].dtype)
    # As PyTorch, to which bfloat16 is an exception: no number is to come twice.
    most = round(2 / torch.finfo(dtype).eps) + 1 if dtype.is_floating_point else n
    if n > most and dtype is not torch.bfloat16:
        raise Error(f"[randperm] n is {n}, but {dtype} cannot represent all whole numbers beyond "
                    f"{most - 1}. Give n up to {most}, or an integer type.")
    return e.op("random_permutation", e.rng(), n=int(n), dtype=_C.DType(ir_dtype(dtype)),
                salt=e.salt(node.meta["salt"]))


@register("aten::exponential")
def _exponential(e, node, x, lambd=1.0, **kwargs):
    return _draw(e, node, "random_exponential", lambd=float(lambd))
