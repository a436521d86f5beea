"""What is known of torch's functions in ``step()``: which numbers may change, what writes."""

import torch

from poptorch._weights import watched

GRAD_GET, GRAD_SET = torch.Tensor.grad.__get__, torch.Tensor.grad.__set__
DATA_SET = torch.Tensor.data.__set__
METADATA = watched.METADATA | {torch.Tensor.__format__, torch.Tensor.__repr__, torch.is_complex,
                        torch.is_floating_point, torch.Tensor.type}

# Functions without a tensor among their arguments that make one.
FACTORIES = frozenset({
    torch.zeros, torch.ones, torch.full, torch.empty, torch.tensor, torch.as_tensor, torch.arange,
    torch.eye, torch.linspace, torch.logspace, torch.scalar_tensor, torch.rand, torch.randn,
    torch.randint, torch.randperm, torch.normal})

# Functions all of whose numbers are operands, which the device can get from the host.
_ARITHMETIC = frozenset({
    "add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "rsub", "radd",
    "rmul", "rtruediv", "rdiv", "truediv", "addcmul", "addcdiv", "lerp", "maximum", "minimum",
    "clamp", "clamp_min", "clamp_max", "clip", "eq", "ne", "lt", "le", "gt", "ge", "where",
    "fill", "masked_fill", "iadd", "isub", "imul", "itruediv", "full_like", "full", "hypot",
    "atan2", "copysign", "xlogy", "heaviside", "logaddexp"})
_RANDOM = frozenset({
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal",
    "bernoulli", "multinomial", "uniform", "exponential", "cauchy", "geometric", "log_normal",
    "poisson", "dropout", "rrelu"})
_FOREACH = "_foreach_"
_DUNDERS_IN_PLACE = frozenset({"__iadd__", "__isub__", "__imul__", "__itruediv__", "__idiv__",
                               "__ipow__", "__setitem__"})


def name_of(func) -> str:
    """The name of a function without what says that it works in place or is an operator."""
    return _full_name(func).strip("_")


def _full_name(func) -> str:
    return getattr(func, "__name__", "").partition(".")[0]  # an operator has its overload there


def is_arithmetic(func) -> bool:
    """Whether the numbers among the arguments of a function are values."""
    return name_of(func) in _ARITHMETIC


def numbers_taken(func, arguments: tuple) -> tuple[type, ...]:
    """The types of the numbers among the arguments that are values, which may differ in each
    update. A whole number with whole tensors keeps the type of the result, and is fixed."""
    if not is_arithmetic(func):
        return ()
    is_float = any(isinstance(one, torch.Tensor) and one.is_floating_point() for one in arguments)
    return (float, int) if is_float or func is torch.full else (float,)


def is_written_in_place(func) -> bool:
    name = _full_name(func)
    return name in _DUNDERS_IN_PLACE or name.endswith("_") and not name.startswith("__")


def is_random(func) -> bool:
    return name_of(func) in _RANDOM


def foreach_calls(func, args: tuple, kwargs: dict) -> list[tuple] | None:
    """The calls, tensor by tensor, that a function of lists makes; None for another function."""
    name = _full_name(func)
    if not name.startswith(_FOREACH):
        return None
    own = name.removeprefix(_FOREACH)
    method = getattr(torch.Tensor, own)
    scalars = kwargs.get("scalars")
    shared = {key: value for key, value in kwargs.items() if key != "scalars"}
    found = []
    for number in range(len(args[0])):
        mine = [one[number] if isinstance(one, (list, tuple)) else one for one in args]
        if scalars is not None:
            mine.append(scalars[number])
        named = dict(shared)
        if own.strip("_") in ("addcmul", "addcdiv") and len(mine) == 4:
            named["value"] = mine.pop()
        found.append((method, tuple(mine), named))
    return found
