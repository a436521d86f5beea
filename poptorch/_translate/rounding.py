"""Stochastic rounding: an op with 16-bit results becomes one on float32, and its results are
rounded by chance.

    %1 = add %x, %y : f16[8]    =>    %2 = cast %x : f32[8]
                                      %3 = cast %y : f32[8]
                                      %4 = add %2, %3 : f32[8]
                                      %1 = stochastic_cast %4, %rng : f16[8]

So no kernel handles it. Every op counts that is not listed here, as do operators of PyTorch
without a row: what an op does not round stays as it is, as ``stochastic_cast`` gives numbers that
the type has.
"""

from poptorch import _C
from poptorch._base.torch_private.basic import pytree

_HALVES = frozenset({"f16", "bf16"})

# Rows that choose among their operands' numbers, or make numbers that every float type has; and
# random integers: the nearest numbers that the type has are within their range.
_EXACT = frozenset({
    "abs", "adaptive_max_pool2d", "amax", "amin", "bernoulli", "bitcast", "cat", "ceil", "clone",
    "constant", "constant_pad_nd", "contiguous", "diagonal", "diagonal_backward",
    "diagonal_scatter", "dynamic_slice", "dynamic_update", "embedding", "expand", "flip", "floor",
    "frac", "full", "gather", "im2col", "index", "index_select", "masked_fill", "max_dim",
    "max_pool2d", "maximum", "min_dim", "minimum", "neg", "nop", "permute", "print_tensor",
    "random_int", "relu", "repeat", "reshape", "roll", "round", "scatter", "sign", "slice",
    "slice_backward", "slice_scatter", "sort", "threshold_backward", "topk", "tril", "triu",
    "trunc", "upsample_nearest2d", "view", "where"})

# Rows that compute nothing, or call code of the user's, which may round in any way.
_LEFT_ALONE = frozenset({
    "assign", "custom", "float16_partials_matmul", "host_call", "input", "ipu_copy", "loop",
    "remote_load", "remote_store", "rng_advance", "rng_fold", "stash", "state", "stochastic_cast",
    "strategy", "stream_in", "stream_out", "task", "tensor_location"})

# Operators of PyTorch whose results lie as close together as the type's numbers do.
_BY_SPACING = frozenset({"aten::frexp.Tensor", "aten::nextafter"})


def rounds(name: str, attrs: dict) -> bool:
    """Whether an op's 16-bit results are rounded by the device."""
    if name in _EXACT or name in _LEFT_ALONE:
        return False
    if name == "aten":
        return attrs["overload"].startswith("aten::") and attrs["overload"] not in _BY_SPACING
    return True


def result_types(name: str, operands: list, attrs: dict, types) -> list:
    """``(dtype, sizes)`` of an op's results, where one of them can be of 16 bits; else nothing."""
    given = [value.dtype for value in operands if value is not None]
    named = [value.name for value in pytree.tree_leaves(attrs) if isinstance(value, _C.DType)]
    if types is None:
        if _HALVES.isdisjoint(given) and _HALVES.isdisjoint(named):
            return []
        types = _C.infer(name, [None if value is None else (value.dtype, list(value.sizes))
                                for value in operands], attrs)
    return [] if _HALVES.isdisjoint(dtype for dtype, _ in types) else types


def widened(attr):
    """An attribute, with float32 for 16-bit types."""
    if isinstance(attr, list):
        return [widened(part) for part in attr]
    return _C.DType("f32") if isinstance(attr, _C.DType) and attr.name in _HALVES else attr


def is_half(dtype: str) -> bool:
    """Whether a type has 16 bits."""
    return dtype in _HALVES
