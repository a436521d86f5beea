"""Ranges of the integers that nodes of a captured graph compute.

By them translate decides which int64 values need 64 bits: those that an int32 might not hold. A
range is ``(lowest, highest)``, both included; an operation that is not known here, of integers, may
give any int64. Tensors that come from outside of the graph hold numbers of int32, as the host
checks.
"""

import itertools
import math

import torch

from poptorch._base.types import check_dense, narrowed, unnarrowed

Range = tuple[int, int]

_BOOL = (0, 1)
_INT32 = (torch.iinfo(torch.int32).min, torch.iinfo(torch.int32).max)
_INT64 = (torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max)
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
# Operands that say where or whether, and so are not among the results.
_PLACES = frozenset({"index", "indices", "mask", "condition"})
_NUMBERS = ("number", "Optional[number]")
_DATA = ("Tensor", "List[Tensor]", "Optional[Tensor]", *_NUMBERS)


def fits_int32(found: Range | None) -> bool:
    """Whether int32 holds all numbers of a range; None is that of floating-point numbers."""
    return found is None or _INT32[0] <= found[0] and found[1] <= _INT32[1]


def of_constant(tensor: torch.Tensor) -> Range | None:
    """The range of an int64 tensor that does not change; None for others."""
    if tensor.dtype is not torch.int64 or not tensor.numel():
        return None
    check_dense(tensor, "constant")
    low, high = torch.aminmax(tensor)
    return int(low), int(high)


def of_results(node: torch.fx.Node, known: dict):
    """The range of a node's result, or the list of those of its results.

    Args:
        node: calls an operation.
        known: the ranges of other nodes; those that are not there come from outside.
    """
    val = node.meta["val"]
    parts = val if isinstance(val, (tuple, list)) else (val,)
    if not any(map(_is_integer, parts)):
        found = [_BOOL if _has_dtype(part, torch.bool) else None for part in parts]
    else:
        call = _Call(node, known)
        given = _RULES.get(call.name, _unknown)(call)
        given = given if isinstance(given, list) else [given] * len(parts)
        found = [_held(found, part) for found, part in zip(given, parts, strict=True)]
    return found if isinstance(val, (tuple, list)) else found[0]


def has_large_number(node: torch.fx.Node) -> bool:
    """Whether an operation of int64 has a number beyond int32 among its arguments.

    In comparisons the limits of int64 stand for those of int32, as they do in tensors.
    """
    call = _Call(node, {})
    numbers = [value for name, value in call.arguments.items()
               if type(value) is int and call.types[name] in _DATA]
    if call.name in _COMPARISONS:
        numbers = [number for number in numbers if number not in _INT64]
    return any(not fits_int32((number, number)) for number in numbers)


def has_inexact_number(node: torch.fx.Node) -> bool:
    """Whether there is an integer among an operation's numbers that a float64 does not hold."""
    call = _Call(node, {})
    return any(type(value) is int and call.types[name] in _NUMBERS and int(float(value)) != value
               for name, value in call.arguments.items())


def _is_integer(part) -> bool:
    return isinstance(part, torch.Tensor) and not (
        part.is_floating_point() or part.is_complex() or part.dtype is torch.bool)


def _has_dtype(part, dtype: torch.dtype) -> bool:
    return isinstance(part, torch.Tensor) and part.dtype is dtype


def _limits(part: torch.Tensor) -> Range:
    if part.dtype is torch.bool:
        return _BOOL
    with unnarrowed(torch.int64):
        limits = torch.iinfo(narrowed(part.dtype))
    return limits.min, limits.max


def _held(found: Range | None, part) -> Range | None:
    """What the type of a tensor makes of a range: beyond its limits numbers wrap around."""
    if not isinstance(part, torch.Tensor) or part.is_floating_point() or part.is_complex():
        return None
    low, high = _limits(part)
    return found if found is not None and low <= found[0] and found[1] <= high else (low, high)


class _Call:
    """One node as rules see it.

    Attributes:
        node: the node.
        name: of its operation, without namespace ``aten``.
        arguments: by the names of the schema.
        types: of the arguments, in the schema's words.
    """

    def __init__(self, node: torch.fx.Node, known: dict):
        schema = node.target._schema
        self.node, self._known = node, known
        self.name = schema.name.removeprefix("aten::")
        self.types = {argument.name: str(argument.type) for argument in schema.arguments}
        defaults = {argument.name: argument.default_value for argument in schema.arguments}
        self.arguments = {**defaults, **dict(zip(defaults, node.args)), **node.kwargs}

    def of(self, name: str) -> Range:
        """The range of an argument: a tensor, tensors or a number."""
        return self.of_value(self.arguments[name])

    def of_value(self, value) -> Range:
        """Likewise, of its value."""
        if isinstance(value, torch.fx.Node):
            val = value.meta["val"]
            if not isinstance(val, torch.Tensor) or val.is_floating_point():
                return _INT64
            low, high = _limits(val)
            return self._known.get(value) or (max(low, _INT32[0]), min(high, _INT32[1]))
        if isinstance(value, (list, tuple)):
            return _union(*map(self.of_value, value))
        if isinstance(value, float):
            return (math.floor(value), math.ceil(value)) if math.isfinite(value) else _INT64
        return int(value), int(value)

    def has(self, name: str) -> bool:
        """Whether an argument is given."""
        return self.arguments.get(name) is not None

    def shape(self, name: str) -> torch.Size:
        """The sizes of a tensor."""
        return self.arguments[name].meta["val"].shape

    def operands(self) -> list[torch.Tensor]:
        """All tensors, without data."""
        return [node.meta["val"] for node in self.node.all_input_nodes
                if isinstance(node.meta["val"], torch.Tensor)]

    def count(self, name: str = "self") -> int:
        """Of how many elements of an argument one of the result is made, in a reduction."""
        numel = self.node.meta["val"].numel()
        return -(-self.shape(name).numel() // numel) if numel else 0

    def length(self) -> int:
        """The size of dimension ``dim`` of ``self``."""
        shape = self.shape("self")
        return shape[self.arguments["dim"]] if shape else 1


def _union(*ranges: Range) -> Range:
    lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
    return min(lows, default=0), max(highs, default=0)


def _corners(function, x: Range, y: Range) -> Range:
    found = [function(a, b) for a, b in itertools.product(x, y)]
    return min(found), max(found)


def _times(x: Range, y: Range) -> Range:
    return _corners(lambda a, b: a * b, x, y)


def _plus(x: Range, y: Range) -> Range:
    return x[0] + y[0], x[1] + y[1]


def _minus(x: Range) -> Range:
    return -x[1], -x[0]


def _size(x: Range) -> int:
    return max(abs(x[0]), abs(x[1]))


def _power(x: Range, most: int) -> Range:
    """Of products of up to ``most`` factors."""
    size = max(1, _size(x))
    if most * (size.bit_length() - 1) > 64:  # and too much to compute
        return _INT64
    return (0 if x[0] >= 0 else -size ** most), size ** most


def _unknown(call: _Call) -> Range:
    """Of floating-point numbers and bools alone there are counts and positions."""
    is_ours = call.node.target.namespace not in ("aten", "prims")
    return _INT32 if is_ours or not any(map(_is_integer, call.operands())) else _INT64


def _moved(call: _Call) -> Range:
    if call.arguments.get("reduce") is not None or call.arguments.get("accumulate"):
        return _INT64
    return _union(*(call.of(name) for name, value in call.arguments.items()
                    if value is not None and name not in _PLACES
                    and call.types[name] in _DATA))


def _viewed(call: _Call) -> Range:
    return _INT64 if "dtype" in call.arguments else _moved(call)


def _moved_beside_zeros(call: _Call) -> Range:
    return _union(_moved(call), (0, 0))


def _positions(call: _Call) -> Range:
    return -1, max((x.numel() for x in call.operands()), default=0)


def _values_and_positions(call: _Call):
    if not isinstance(call.node.meta["val"], (tuple, list)):
        return _moved(call)
    return [call.of("self"), _positions(call)]


def _added(call: _Call) -> Range:
    x, y = call.of("self"), call.of("other")
    alpha = call.of("alpha")
    if call.name == "rsub":
        x, y = y, x
    scaled = _times(y, alpha)
    return _plus(x, scaled if call.name == "add" else _minus(scaled))


def _added_to(call: _Call, source: str) -> Range:
    count = max(1, call.shape(source).numel())
    alpha = call.of("alpha") if call.has("alpha") else (1, 1)
    return _plus(call.of("self"), _times(_times(call.of(source), alpha), (0, count)))


def _absolute(call: _Call) -> Range:
    return 0, _size(call.of("self"))


def _pow(call: _Call) -> Range:
    exponent = call.of("exponent")
    return _power(call.of("self"), max(1, min(exponent[1], 128)))


def _remainder(call: _Call) -> Range:
    x, y = call.of("self"), call.of("other")
    if call.name == "fmod":
        most = max(_size(y) - 1, 0)
        return max(-most, min(x[0], 0)), min(most, max(x[1], 0))
    low, high = min(y[0] + 1, 0), max(y[1] - 1, 0)
    return low, (min(high, max(x[1], 0)) if x[0] >= 0 and y[0] >= 0 else high)


def _quotient(call: _Call) -> Range:
    x, y = call.of("self"), call.of("other")
    if y[0] > 0:
        return min(x[0], 0), max(x[1], 0)
    return -_size(x), _size(x)


def _least(call: _Call) -> Range:
    (a, b), (c, d) = call.of("self"), call.of("other")
    return min(a, c), min(b, d)


def _greatest(call: _Call) -> Range:
    (a, b), (c, d) = call.of("self"), call.of("other")
    return max(a, c), max(b, d)


def _clamped(call: _Call) -> Range:
    low, high = call.of("self")
    if call.has("min"):
        least = call.of("min")
        low, high = max(low, least[0]), max(high, least[1])
    if call.has("max"):
        most = call.of("max")
        low, high = min(low, most[0]), min(high, most[1])
    return low, high


def _bits(call: _Call) -> Range:
    x, y = call.of("self"), call.of("other")
    if call.name in ("bitwise_and", "__and__"):
        least = [r[1] for r in (x, y) if r[0] >= 0]
        if least:
            return 0, min(least)
    limit = 2 ** max((~v if v < 0 else v).bit_length() for v in (*x, *y))
    return (0 if min(x[0], y[0]) >= 0 else -limit), limit - 1


def _shifted_left(call: _Call) -> Range:
    x, by = call.of("self"), call.of("other")
    return _union((0, 0), x, _times(x, (0, 2 ** max(0, min(by[1], 64)))))


def _shifted_right(call: _Call) -> Range:
    return _union(call.of("self"), (-1, 0))


def _sum(call: _Call) -> Range:
    return _times(call.of("self"), (call.count(), call.count()))


def _running_sum(call: _Call) -> Range:
    return _times(call.of("self"), (1, max(1, call.length())))


def _product(call: _Call) -> Range:
    return _power(call.of("self"), max(1, call.count()))


def _running_product(call: _Call) -> Range:
    return _power(call.of("self"), max(1, call.length()))


def _matrix_product(call: _Call) -> Range:
    names = [name for name in call.arguments if name in ("self", "mat2", "other", "tensor", "vec")]
    x, y = (call.of(name) for name in names)
    return _times(_times(x, y), (0, call.shape("self")[-1] if call.shape("self") else 1))


def _interval(call: _Call) -> Range:
    given = [call.of(name) for name in ("start", "end") if name in call.arguments]
    return _plus(_union(*given, (0, 0)), (-1, 1))


def _drawn(call: _Call) -> Range:
    low = call.of("low")[0] if "low" in call.arguments else 0
    found = low, call.of("high")[1]
    return found if fits_int32(found) else _INT32  # is refused


def _converted(call: _Call) -> Range:
    name = "self" if "self" in call.arguments else "a"
    return call.of(name)


_RULES: dict = {
    **dict.fromkeys(("add", "sub", "rsub"), _added),
    "mul": lambda call: _times(call.of("self"), call.of("other")),
    "neg": lambda call: _minus(call.of("self")), "abs": _absolute,
    "bitwise_not": lambda call: _plus(_minus(call.of("self")), (-1, -1)),
    "square": lambda call: (0, _size(call.of("self")) ** 2), "pow": _pow,
    "sign": lambda call: (-1, 1), "sgn": lambda call: (-1, 1),
    "remainder": _remainder, "fmod": _remainder,
    "div": _quotient, "floor_divide": _quotient,
    "minimum": _least, "maximum": _greatest,
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), _clamped),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__"),
                    _bits),
    "bitwise_left_shift": _shifted_left, "__lshift__": _shifted_left,
    "bitwise_right_shift": _shifted_right, "__rshift__": _shifted_right,
    "sum": _sum, "cumsum": _running_sum, "prod": _product, "cumprod": _running_product,
    **dict.fromkeys(("mm", "bmm", "matmul", "dot", "vdot", "mv"), _matrix_product),
    "scatter_add": lambda call: _added_to(call, "src"),
    "index_add": lambda call: _added_to(call, "source"),
    "arange": _interval, "linspace": _interval, "eye": lambda call: _BOOL,
    **dict.fromkeys(("randint", "randint_like"), _drawn),
    **dict.fromkeys(("_to_copy", "prims::convert_element_type"), _converted),
    "scalar_tensor": lambda call: call.of("s"),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "zero",
                     "ones", "ones_like", "new_ones"), lambda call: _BOOL),
    **dict.fromkeys(("full", "new_full", "full_like"), lambda call: call.of("fill_value")),
    "fill": lambda call: call.of("value"), "view": _viewed,
    "tril_indices": lambda call: (0, max(call.of("row")[1], call.of("col")[1])),
    "triu_indices": lambda call: (0, max(call.of("row")[1], call.of("col")[1])),
    **dict.fromkeys((
        "argmax", "argmin", "argsort", "count_nonzero", "searchsorted", "bucketize",
        "multinomial", "poptorch::bincount"), _positions),
    "random": lambda call: _INT32, "randperm": lambda call: (0, call.of("n")[1]),
    **dict.fromkeys((
        "max", "min", "sort", "topk", "kthvalue", "mode", "median", "nanmedian", "cummax", "cummin",
        "max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d",
        "adaptive_max_pool3d", "fractional_max_pool2d", "fractional_max_pool3d"),
        _values_and_positions),
    **dict.fromkeys((
        "_conj", "_reshape_alias", "_unsafe_index", "_unsafe_index_put", "_unsafe_view", "alias",
        "alias_copy", "amax", "amin", "as_strided", "as_strided_copy", "broadcast_to", "cat",
        "chunk", "clone", "concat", "concatenate", "constant_pad_nd", "contiguous", "copy",
        "detach", "diagonal", "diagonal_copy", "diagonal_scatter", "embedding", "expand",
        "expand_as", "expand_copy", "flatten", "flip", "gather", "index", "index_copy",
        "index_fill", "index_put", "index_select", "lift_fresh", "lift_fresh_copy", "masked_fill",
        "masked_scatter", "narrow", "narrow_copy", "numpy_T", "permute", "permute_copy",
        "poptorch::elements", "poptorch::elements_scatter", "positive", "real", "repeat",
        "reshape", "resolve_conj", "resolve_neg", "roll", "rot90", "scatter",
        "select", "select_copy", "select_scatter", "slice", "slice_copy", "slice_scatter", "split",
        "split_copy", "split_with_sizes", "split_with_sizes_copy", "squeeze", "squeeze_copy",
        "stack", "swapaxes", "t", "t_copy", "take", "transpose", "transpose_copy", "unbind",
        "unbind_copy", "unflatten", "unfold", "unfold_copy", "unsafe_chunk", "unsafe_split",
        "unsafe_split_with_sizes", "unsqueeze", "unsqueeze_copy", "view_copy", "view_of", "where"),
        _moved),
    **dict.fromkeys(("tril", "triu", "diag_embed", "diagonal_backward", "select_backward",
                     "slice_backward"), _moved_beside_zeros),
}
