"""How a tensor is stored, and the same elements as a tensor of one dimension.

``emit(target, *arguments)`` adds an operation and returns its result.
"""

import math

import numpy
import torch

aten = torch.ops.aten


def dims_in_memory(tensor) -> list[int] | None:
    """The dimensions in the order of their strides, the last one closest; None where
    there are gaps, or elements lie on each other."""
    if tensor.numel() < 2:
        return list(range(tensor.dim()))
    order = sorted(range(tensor.dim()), key=lambda d: -tensor.stride(d))
    wide = [d for d in order if tensor.shape[d] != 1]
    step = 1
    for d in reversed(wide):
        if tensor.stride(d) != step:
            return None
        step *= tensor.shape[d]
    if wide == sorted(wide):
        return list(range(tensor.dim()))
    return [d for d in order if tensor.shape[d] == 1] + wide


def row_major(sizes) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    found, step = [], 1
    for size in reversed(sizes):
        found.append(step)
        step *= max(size, 1)
    return tuple(reversed(found))


def as_row_major(tensor):
    """``tensor`` as what PyTorch makes with rows one after the other: also the strides of
    dimensions of one element, which ``contiguous()`` leaves as they are."""
    if tensor.stride() == row_major(tensor.shape):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def expanded_dims(tensor) -> list[int]:
    """The dimensions along which all elements share memory."""
    return [dim for dim, (size, step) in enumerate(zip(tensor.shape, tensor.stride()))
            if step == 0 and size > 1]


def distinct(tensor):
    """``tensor`` with one element of each expanded dimension."""
    for dim in expanded_dims(tensor):
        tensor = tensor.narrow(dim, 0, 1)
    return tensor


def copied_strides(tensor) -> tuple[int, ...]:
    """The strides of ``tensor.clone()``, which has neither gaps nor elements on each other."""
    around = torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
    return around.clone().stride()  # empty_like has other strides of dimensions of one element


def has_symbolic_sizes(tensor) -> bool:
    """Whether it is a tensor whose sizes are symbols, as torch.compile traces dynamic shapes."""
    return isinstance(tensor, torch.Tensor) and any(
        isinstance(size, torch.SymInt) for size in tensor.shape)


def product_strides(tensor) -> tuple[int, ...]:
    """The strides of ``tensor * tensor.clone()``."""
    strides = copied_strides(tensor)
    if has_symbolic_sizes(tensor) or 1 not in tensor.shape and 0 not in tensor.stride():
        return strides
    # Of such dimensions only the kernel for the CPU knows them.
    x, y = (torch.empty_strided(tensor.shape, s).zero_() for s in (tensor.stride(), strides))
    return (x * y).stride()


def extent(tensor) -> int:
    """Elements of the memory from the first element of ``tensor`` to its last."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))


def flat(emit, x, dims: list[int]):
    """The memory of ``x``, whose dimensions are stored in the order ``dims``."""
    if dims != sorted(dims):
        x = emit(aten.permute.default, x, dims)
    return x if len(dims) == 1 else emit(aten.reshape.default, x, [-1])


def unflat(emit, x, dims: list[int], size: list[int]):
    """The tensor of ``size`` that has the memory ``x``."""
    if len(dims) != 1:
        x = emit(aten.reshape.default, x, [size[d] for d in dims])
    if dims == sorted(dims):
        return x
    return emit(aten.permute.default, x, [dims.index(d) for d in range(len(dims))])


def positions(size, stride, offset: int) -> numpy.ndarray:
    """``offset + sum(index[d] * stride[d])`` for each index: integers of shape ``size``."""
    found = numpy.asarray(offset, dtype=numpy.int64)
    for count, step in zip(size, stride):
        found = found[..., None] + numpy.arange(count) * step
    return found


def lies_on_itself(size, stride) -> bool:
    """Whether several indices of a view in memory may name one place."""
    if 0 in size:
        return False
    reach = 0
    for step, count in sorted((step, count) for count, step in zip(size, stride) if count > 1):
        if step <= reach:
            return numpy.unique(positions(size, stride, 0)).size != math.prod(size)
        reach += step * (count - 1)
    return False


def memory_of(value) -> int | None:
    """The identity of the memory of a dense tensor; None for anything else."""
    is_dense = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return value.untyped_storage()._cdata if is_dense else None


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one type and shape have the same values, bit for bit."""
    return torch.equal(bits_of(one), bits_of(other))


def bits_of(value: torch.Tensor) -> torch.Tensor:
    """The values of a tensor as bytes, one after the other."""
    value = value.detach().resolve_neg().resolve_conj()
    return value.contiguous().reshape(-1).view(torch.uint8)


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one storage have an element in common."""
    begins = [tensor.storage_offset() * tensor.itemsize for tensor in (one, other)]
    ends = [begin + extent(tensor) * tensor.itemsize for begin, tensor in zip(begins, (one, other))]
    if begins[0] >= ends[1] or begins[1] >= ends[0]:
        return False
    if one.dtype is not other.dtype:
        return True
    marks = torch.zeros(max(ends) // one.itemsize, dtype=torch.bool)
    marks.as_strided(one.size(), one.stride(), one.storage_offset()).fill_(True)
    return bool(marks.as_strided(other.size(), other.stride(), other.storage_offset()).any())
