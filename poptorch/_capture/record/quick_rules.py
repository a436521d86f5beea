"""What operations give for tensors without data, where that can be found faster than by the rules
of a fake-tensor mode in Python: shape, strides, offset, dtype and memory of eager."""

import operator

import torch

from poptorch._base.layout import row_major
from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._capture.record.recorded_ops import are_row_major

aten = torch.ops.aten

# Torch's kernels of these for tensors without data give just what eager's results are.
KERNEL_SUFFICES = frozenset((
    aten.view.default, aten._unsafe_view.default, aten.t.default, aten.transpose.int,
    aten.permute.default, aten.expand.default, aten.unsqueeze.default, aten.squeeze.default,
    aten.squeeze.dim, aten.squeeze.dims, aten.select.int, aten.slice.Tensor, aten.diagonal.default,
    aten.unfold.default, aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int,
    aten.clone.default, aten._to_copy.default, aten.cat.default, aten.stack.default,
    aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default,
    aten.sum.default, aten.mean.default, aten.cumsum.default,
    # In the mode, a second result of this has other memory than the first one.
    aten._new_zeros_with_same_feature_meta.default))

_NAMED = {"dtype", "memory_format"}  # a device or a layout may differ
# Keywords of elementwise operations that choose what is computed. They are no tensors.
_CHOICES = {"alpha", "value", "rounding_mode", "approximate"}
_elementwise: dict = {aten.floor_divide.default: True}  # of overloads, whether they are


def result(mode, func, args, kwargs):
    """What an operation gives, or NotImplemented where there is no short way to find it. No operand
    is a real tensor."""
    if func in KERNEL_SUFFICES:
        if _NAMED.issuperset(kwargs) and all(map(_has_no_data, args)):
            return fake_tensors.by_meta_kernel(mode, func, args, kwargs)
    elif _is_elementwise(func) and _CHOICES.issuperset(kwargs) \
            and all(map(_has_no_data, args)) \
            and not any(isinstance(x, torch.Tensor) for x in kwargs.values()):
        if are_row_major(args):
            return _as_of_one_element(mode, func, args, kwargs)
        if _lie_differently(args):
            return _as_of_few_elements(mode, func, args, kwargs)
    return NotImplemented


def _as_of_one_element(mode, func, args, kwargs):
    """The dtype is that of one element, the shape that of all operands broadcast together."""
    shapes = [x.shape for x in args if isinstance(x, torch.Tensor)]
    try:
        shape = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        return NotImplemented  # torch's rule has the words for it
    with private.without_modes(), torch.no_grad():
        dtype = func(*map(_one, args), **kwargs).dtype
    return fake_tensors.new_fake(mode, shape, row_major(shape), dtype)


def _lie_differently(args) -> bool:
    """Whether tensors with dimensions have several shapes or orders of them in memory."""
    return len({(x.shape, x.stride()) for x in args if isinstance(x, torch.Tensor) and x.dim()}) > 1


def _as_of_few_elements(mode, func, args, kwargs):
    """Dtype and order in memory are those of a few elements along each dimension, whose operands
    lie in the same order. (The mode's rules are made of several operations, and give another order
    for some.)"""
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    counts = _few_counts(tensors)
    try:
        with private.without_modes(), torch.no_grad():
            few = func(*(_few(x, counts) for x in args), **kwargs)
        shape = torch.broadcast_shapes(*(x.shape for x in tensors))
    except RuntimeError:
        return NotImplemented  # torch's rule has the words for it
    if 0 in shape:
        return NotImplemented
    strides, step = [0] * few.dim(), 1
    # A dimension of one element lies where that with the same stride begins.
    for dim in sorted(range(few.dim()), key=lambda d: (few.stride(d), few.shape[d], -d)):
        strides[dim] = step
        step *= shape[dim]
    return fake_tensors.new_fake(mode, shape, tuple(strides), few.dtype)


def _few_counts(tensors: list[torch.Tensor]) -> dict[int, int]:
    """How many elements stand for the sizes of dimensions: two, or, where sizes decide about the
    order, as many as keep it."""
    sizes = sorted({size for x in tensors for size in x.shape if size > 1})
    is_tied = any(map(_has_tied_dimensions, tensors))
    return {0: 0, 1: 1} | {size: 2 + rank * is_tied for rank, size in enumerate(sizes)}


def _has_tied_dimensions(x: torch.Tensor) -> bool:
    """Whether dimensions of different sizes have the same stride: torch orders these by size."""
    dimensions = {(stride, size) for stride, size in zip(x.stride(), x.shape)
                  if stride > 0 and size > 1}
    return len({stride for stride, _ in dimensions}) < len(dimensions)


def _few(argument, counts: dict[int, int]):
    """A tensor with the first few elements along each dimension, of ones."""
    if not isinstance(argument, torch.Tensor):
        return argument
    ranks = {stride: 1 << i for i, stride in enumerate(sorted({*argument.stride()} - {0}))}
    sizes = [counts[size] for size in argument.shape]
    strides = [ranks.get(stride, 0) for stride in argument.stride()]
    memory = torch.ones(1 + sum(map(operator.mul, sizes, strides)), dtype=argument.dtype)
    return memory.as_strided(sizes, strides)


def _one(argument):
    """One as an element of a tensor: numbers can be divided by it."""
    if isinstance(argument, torch.Tensor):
        return torch.ones([1] * argument.dim(), dtype=argument.dtype)
    return argument


def _is_elementwise(func) -> bool:
    found = _elementwise.get(func)
    if found is None:
        tags, returns = func.tags, func._schema.returns
        found = _elementwise[func] = (
            func.namespace == "aten" and torch.Tag.pointwise in tags
            and not private.is_composite(func)  # these may return their argument
            and torch.Tag.nondeterministic_seeded not in tags and not func._schema.is_mutable
            and len(returns) == 1 and isinstance(returns[0].type, torch.TensorType))
    return found


def _has_no_data(argument) -> bool:
    if isinstance(argument, torch.Tensor):
        return fake_tensors.is_fake(argument) \
            and fake_tensors.constant_of(argument) is None
    return not isinstance(argument, (list, tuple)) or all(map(_has_no_data, argument))
