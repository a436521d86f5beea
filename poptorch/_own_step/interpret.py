"""Runs the calls of a trace on other tensors, with numbers as tensors without dimensions."""

from collections.abc import Sequence

import torch

from poptorch._base.torch_private.basic import pytree
from poptorch._own_step.calls import is_arithmetic, is_written_in_place, name_of
from poptorch._own_step.record import Call, Trace

_HALVES = (torch.float16, torch.bfloat16)


def run(trace: Trace, inputs: dict[tuple, torch.Tensor], numbers: Sequence[torch.Tensor]) -> dict:
    """The value of each parameter and state after the calls, by what :attr:`Trace.inputs` calls
    them. ``numbers`` are 64-bit tensors without dimensions, by class."""
    values = {index: inputs[what] for what, index in trace.inputs.items()}
    position = 0
    for call in trace.calls:
        taken = _Taken(numbers, trace.classes, position)
        results = _results(call, values, taken)
        position = taken.position
        values |= zip(call.outputs, results)
    found = {what: values[index] for what, index in trace.inputs.items() if what[0] == "param"}
    return found | {("state", path): values[index] for path, index in trace.outputs.items()}


class _Taken:
    def __init__(self, numbers, classes: list[int], position: int):
        self._numbers, self._classes, self.position = numbers, classes, position
        self.given: dict[int, torch.Tensor] = {}  # the numbers that were taken, by identity

    def next(self) -> torch.Tensor:
        found = self._numbers[self._classes[self.position]]
        self.position += 1
        return self.given.setdefault(id(found), found)


def _results(call: Call, values: dict, taken: _Taken) -> list[torch.Tensor]:
    begin = taken.position
    args, kwargs = (_decoded(part, values, taken) for part in call.template[1:])
    if taken.position > begin and is_arithmetic(call.func):
        return [_with_numbers(call.func, args, kwargs, taken.given)]
    result = call.func(*args, **kwargs)
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _decoded(template, values: dict, taken: _Taken):
    if type(template) is int:
        return values[template]
    kind, *rest = template
    if kind == "number":
        number = taken.next()
        if rest:
            number = number.reshape(rest[0])
            return number.to(rest[1]) if rest[1].is_floating_point else number
        return number
    if kind is list or kind is tuple:
        return kind(_decoded(one, values, taken) for one in rest)
    if kind is dict:
        return {key: _decoded(one, values, taken) for key, one in rest}
    if isinstance(kind, type) and issubclass(kind, tuple) and kind is not torch.Size:
        return kind(*rest)
    return torch.Size(rest) if kind is torch.Size else rest[0]


def _with_numbers(func, args: tuple, kwargs: dict, numbers: dict) -> torch.Tensor:
    """A call some of whose numbers are tensors; 16-bit numbers are computed in float32, and rounded
    once."""
    name = name_of(func)
    if name in ("full", "full_like"):
        return _filled(func, args, kwargs)
    tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
    own = [one for one in tensors if id(one) not in numbers]
    narrow = _type_of(own)
    wide = torch.float32 if narrow in _HALVES else narrow
    # A tensor without dimensions would not keep its type in an operation with a wider number.
    is_cast = not any(one.dim() and one.is_floating_point() for one in own) or wide is not narrow

    def prepared(one):
        if not isinstance(one, torch.Tensor) or not one.is_floating_point():
            return one
        is_narrow = is_cast if id(one) in numbers else one.dtype in _HALVES
        return one.to(wide) if is_narrow else one

    if func is torch.Tensor.where:
        args = args[1], args[0], *args[2:]  # as torch.where has them
    new = _plain(name, [*map(prepared, args)], {k: prepared(v) for k, v in kwargs.items()})
    if is_written_in_place(func):
        return args[0].copy_(new)
    return new.to(narrow) if wide is not narrow and new.is_floating_point() else new


def _type_of(tensors: list[torch.Tensor]) -> torch.dtype:
    found = [one.dtype for one in tensors if one.is_floating_point()]
    with_dims = [one.dtype for one in tensors if one.is_floating_point() and one.dim()]
    found = with_dims or found
    return found[0] if found else torch.get_default_dtype()


def _filled(func, args: tuple, kwargs: dict) -> torch.Tensor:
    *before, value = args if "fill_value" not in kwargs else (*args, kwargs["fill_value"])
    rest = {key: one for key, one in kwargs.items() if key != "fill_value"}
    ones = torch.ones if func is torch.full else torch.ones_like
    made = ones(*before, **rest)
    return made * value.to(made.dtype)


def _plain(name: str, args: list, kwargs: dict) -> torch.Tensor:
    """A function out of place, by forms that take tensors for numbers."""
    name = {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div"}.get(name, name)
    if name in ("add", "sub", "subtract", "radd", "rsub"):
        one, other = args if len(args) == 2 else (args[0], kwargs["other"])
        alpha = kwargs.get("alpha", 1)
        if name == "rsub":
            return other - one * alpha
        return one + other * alpha if name in ("add", "radd") else one - other * alpha
    if name in ("addcmul", "addcdiv"):
        x, a, b = args[:3]
        value = kwargs.get("value", 1)
        part = a * b if name == "addcmul" else a / b
        return x + part * value
    if name == "lerp":
        x, end, weight = args if len(args) == 3 else (*args, kwargs["weight"])
        is_near = weight.abs() < 0.5
        return torch.where(is_near, x, end) + (end - x) * torch.where(is_near, weight, weight - 1)
    if name == "fill":
        return torch.zeros_like(args[0]) + args[1]
    if name in ("clamp", "clip", "clamp_min", "clamp_max"):
        return _clamped(name, args, kwargs)
    if name in _OPERATORS:
        return _OPERATORS[name](*args, **kwargs)
    if name in ("maximum", "minimum", "where"):
        return getattr(torch, name)(*args, **kwargs)
    return getattr(torch.Tensor, name)(*args, **kwargs)


def _clamped(name: str, args: list, kwargs: dict) -> torch.Tensor:
    x, *limits = args
    low, high = kwargs.get("min"), kwargs.get("max")
    if name == "clamp_max":
        high = limits[0] if limits else high
    else:
        low = limits[0] if limits else low
        high = limits[1] if len(limits) > 1 else high
    if low is not None:
        x = torch.maximum(x, torch.as_tensor(low).to(x.dtype))
    return x if high is None else torch.minimum(x, torch.as_tensor(high).to(x.dtype))


_OPERATORS = {
    "mul": torch.mul, "multiply": torch.mul, "rmul": torch.mul, "div": torch.div,
    "divide": torch.div, "true_divide": torch.div, "truediv": torch.div,
    "rtruediv": lambda x, other: other / x, "rdiv": lambda x, other: other / x,
}
