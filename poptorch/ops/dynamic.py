"""Parts of a tensor whose start is known at run time."""

import torch

from poptorch._base.capture_context import is_capturing
from poptorch._capture.library import dynamic  # noqa: F401  (declares the operations)
from poptorch._capture.library.layers import ops
from poptorch.errors import Error


def dynamic_slice(tensor: torch.Tensor, dim: int, start: torch.Tensor, size: int,
                  step: int) -> torch.Tensor:
    """Takes a part of a tensor that begins at an index held by another tensor.

    ``tensor[start : start + size : step]`` along one dimension, where ``start`` is computed by the
    program: it may differ in each call, and the program is compiled once. Outside of
    poptorch it does the same.

    Args:
        tensor: of any type and at least one dimension.
        dim: the dimension; a negative one counts from the end.
        start: an integer tensor of one element, the first entry. Negative numbers count from the
            end, as in :func:`torch.narrow`.
        size: how many entries the part covers: a factor of the dimension's size.
        step: every ``step``-th of them is taken, at least 1.

    Returns:
        A copy with ``ceil(size / step)`` entries along ``dim``. Its gradient flows to the part.

    Raises:
        poptorch.Error: An argument is wrong; or, when it runs, the part does not lie inside of the
            tensor.

    Example:
        >>> import poptorch, torch
        >>> x = torch.arange(8)
        >>> poptorch.dynamic_slice(x, 0, torch.tensor([3]), 4, 2)
        tensor([3, 5])
    """
    where = "dynamic_slice"
    dim = _dim(where, tensor, dim)
    size, step = _int(where, "size", size), _int(where, "step", step)
    _check_size(where, tensor, dim, size)
    if tensor.shape[dim] % size:
        raise Error(f"[{where}] the size {size} is no factor of the size {tensor.shape[dim]} of "
                    f"dimension {dim}. Choose a size that divides it, or pad the tensor.")
    if step < 1:
        raise Error(f"[{where}] step is {step}. Use a step of at least 1.")
    step = min(step, size)  # takes the same; sums with larger ones may not fit 64 bits
    start = _start(where, start)
    if is_capturing():
        return ops.dynamic_slice(tensor, dim, start, size, step)
    first = _first(where, tensor, dim, start, size)
    return tensor.index_select(dim, torch.arange(first, first + size, step))


def dynamic_update(input: torch.Tensor, src: torch.Tensor, dim: int, start: torch.Tensor,
                   size: int) -> torch.Tensor:
    """Replaces a part of a tensor that begins at an index held by another tensor.

    Outside of poptorch it does the same.

    Args:
        input: of any type and at least one dimension. It is not changed.
        src: what takes the place of the part: of the type and the sizes of ``input``, but of
            ``size`` entries along ``dim``.
        dim: the dimension; a negative one counts from the end.
        start: an integer tensor of one element, the first entry. Negative numbers count from the
            end.
        size: how many entries are replaced.

    Returns:
        ``input`` with ``src`` in it. Gradients flow to both.

    Raises:
        poptorch.Error: An argument is wrong; or, when it runs, the part does not lie inside of the
            tensor.

    Example:
        >>> import poptorch, torch
        >>> x = torch.zeros(5)
        >>> poptorch.dynamic_update(x, torch.ones(2), 0, torch.tensor([3]), 2)
        tensor([0., 0., 0., 1., 1.])
    """
    where = "dynamic_update"
    dim, size = _dim(where, input, dim), _int(where, "size", size)
    if input.dim() != src.dim():
        raise Error(f"[{where}] input and src must have the same number of dimensions: "
                    f"({input.dim()}) vs ({src.dim()}). Add dimensions to src with unsqueeze().")
    if input.dtype is not src.dtype:
        raise Error(f"[{where}] input and src must have the same type: {input.dtype} vs "
                    f"{src.dtype}. Convert src with .to(input.dtype).")
    _check_size(where, input, dim, size)
    expected = (*input.shape[:dim], size, *input.shape[dim + 1:])
    if tuple(src.shape) != expected:
        raise Error(f"[{where}] src has the sizes {list(src.shape)}, but {list(expected)} are "
                    f"replaced. Give it those sizes.")
    start = _start(where, start)
    if is_capturing():
        return ops.dynamic_update(input, src, dim, start, size, 1)
    first = _first(where, input, dim, start, size)
    # Entries of an expanded or unfolded input share memory; those of the result do not.
    result = input.clone(memory_format=torch.contiguous_format)
    result.narrow(dim, first, size).copy_(src)
    return result


def _int(where: str, name: str, value) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Error(f"[{where}] {name} is {value!r}, but an int is needed: it is compiled in. Only "
                    f"start may be a tensor.")
    return value


def _dim(where: str, tensor: torch.Tensor, dim: int) -> int:
    rank = tensor.dim()
    if not -rank <= _int(where, "dim", dim) < rank:
        raise Error(f"[{where}] dim is {dim}, but the tensor has the sizes {list(tensor.shape)}. "
                    f"Name one of its dimensions.")
    return dim % rank


def _check_size(where: str, tensor: torch.Tensor, dim: int, size: int) -> None:
    if not 1 <= size <= tensor.shape[dim]:
        raise Error(f"[{where}] the size of the part is {size}, but dimension {dim} has "
                    f"{tensor.shape[dim]} entries. The part must end behind its start, inside of "
                    f"the tensor: use a size of 1 to {tensor.shape[dim]}.")


def _start(where: str, start) -> torch.Tensor:
    if isinstance(start, int) and not isinstance(start, bool):
        if not -2**63 <= start < 2**63:
            raise Error(f"[{where}] start is {start}, which does not fit 64 bits. Check where it "
                        f"comes from.")
        start = torch.tensor(start)
    whole = isinstance(start, torch.Tensor) and start.dtype is not torch.bool \
        and not start.is_floating_point() and not start.is_complex()
    if not whole or start.numel() != 1:
        said = f"of {start.dtype} and sizes {list(start.shape)}" \
            if isinstance(start, torch.Tensor) else repr(start)
        raise Error(f"[{where}] start is {said}, but an integer tensor of one element is needed. "
                    f"Convert it, or take one element of it.")
    return start if start.dtype in (torch.int32, torch.int64) else start.int()


def _first(where: str, tensor, dim: int, start: torch.Tensor, size: int) -> int:
    given, count = int(start), tensor.shape[dim]
    first = given + count if given < 0 else given
    if not 0 <= first <= count - size:
        raise Error(f"[{where}] start {given} with size {size} is out of range: dimension {dim} "
                    f"has {count} entries, so 0 to {count - size} (or {-count} to {-size}, counted "
                    f"from the end) are allowed. Check where the start comes from.")
    return first
